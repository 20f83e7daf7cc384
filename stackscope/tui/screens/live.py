"""The live screen: what is happening now, every pane of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.geometry import Offset, Spacing
from textual.geometry import Region as Area
from textual.layout import Layout as WidgetLayout
from textual.layout import WidgetPlacement

from stackscope.tui import bars
from stackscope.tui.bindings import bindings
from stackscope.tui.layout import Layout, arranged
from stackscope.tui.lines import Span
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from stackscope.tui.panes.events import latest
from stackscope.tui.screens.running import RunningScreen
from stackscope.tui.widgets.painted import Bar, TooSmall
from stackscope.tui.widgets.pane_view import PaneView
from stackscope.tui.widgets.toggle_bar import ToggleBar

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.geometry import Size as TerminalSize
    from textual.layout import ArrangeResult
    from textual.widget import Widget

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.feed import Frame

PAGE_KEYS: Final = ("page_previous", "page_next")


class PageLayout(WidgetLayout):
    """Puts widgets where `layout.arranged` says, by their ids; those that are on another page, nowhere."""

    name = "page"

    def __init__(self) -> None:
        self.page: Layout = arranged(0, 0)

    def arrange(
        self,
        parent: Widget,  # noqa: ARG002 - as in the base class
        children: list[Widget],
        size: TerminalSize,
        greedy: bool = True,  # noqa: ARG002
    ) -> ArrangeResult:
        """The places of the page."""
        regions = self.page.regions
        if self.page.is_too_small:
            whole = Area(0, 0, size.width, size.height)
            return [_placed(child, whole) for child in children if child.id == "small"]
        return [_placed(child, Area(*regions[name])) for child in children if (name := child.id or "") in regions]


def _placed(child: Widget, area: Area) -> WidgetPlacement:
    return WidgetPlacement(area, Offset(0, 0), Spacing(0, 0, 0, 0), child)


def _end(frame: Frame) -> str | None:
    """What ended the engine; where it could not even start, with what can be done about that. `None`: nothing did."""
    failure = frame.status.failure
    return None if failure is None else str(failure) if frame.snapshot.header is None else failure.message


class LiveScreen(RunningScreen):
    """Everything at once, or on pages where the terminal is too small for that."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live")]

    here = "screen_live"
    BLANK = True
    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._places: Final = PageLayout()
        self._page = 0
        self._selected: int | None = None
        """The request that the user chose. `None`: none, so that the first one is shown."""
        self._bars: Final = {id: Bar(id=id) for id in ("header", "tabs", "event", "transport", "footer")}
        self._views: Final = {name: PaneView(pane) for name, pane in PANES.items()}
        self._small: Final = TooSmall(id="small")
        self._toggles: ToggleBar | None = None
        """`None`: the keys are not known yet that it shows."""

    def compose(self) -> ComposeResult:
        self._toggles = ToggleBar(self.owner.keys, id="toggles")
        yield from (self._bars["header"], self._toggles, self._bars["tabs"], *self._views.values())
        yield from (self._bars["event"], self._bars["transport"], self._bars["footer"], self._small)

    @property
    def layout(self) -> WidgetLayout:
        """Ours, which no stylesheet can name."""
        return self._places

    def on_mount(self) -> None:
        self._arrange()

    def on_resize(self, _event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(self.show_again)

    # Frames

    def show(self, frame: Frame) -> None:
        """Draw what this page shows of a frame."""
        has_transport = frame.status.playing is not None
        if has_transport is not ("transport" in self._places.page.regions) and not self._places.page.is_too_small:
            self._arrange()
            self.call_after_refresh(self.show_again)
            return
        if self._places.page.is_too_small:
            self._small.say(*self.size)
            return
        self._show_bars(frame)
        context = self._context_of(frame)
        for name in self._places.page.regions:
            if name in PANES:
                self._views[name].show(context)

    def _context_of(self, frame: Frame) -> Context:
        selected = self._selection(frame.snapshot)
        text = None if selected is None else self.owner.text_of(selected)
        return Context(
            snapshot=frame.snapshot,
            size=Size(1, 1),
            look=self.owner.look,
            selected=selected,
            text=text,
            end=_end(frame),
            is_paused=self.owner.is_paused,
        )

    def _selection(self, snapshot: Snapshot) -> int | None:
        """The request whose text is shown: the chosen one as long as it is there, or the first."""
        ids = [request.id for request in snapshot.requests]
        if self._selected in ids:
            return self._selected
        self._selected = None
        return ids[0] if ids else None

    def _show_bars(self, frame: Frame) -> None:
        snapshot, status, look = frame.snapshot, frame.status, self.owner.look
        width = self.size.width
        page = self._places.page
        self._bars["header"].show(bars.header(snapshot, status, width, look, is_paused=self.owner.is_paused))
        if self._toggles is not None:
            self._toggles.show(self.owner.toggling.situation)
        if "tabs" in page.regions:
            turn = " ".join(self.owner.keys.shown(id) for id in PAGE_KEYS)
            self._bars["tabs"].show(bars.pages(page.pages, page.page, width, look, keys=turn))
        if "event" in page.regions:
            self._bars["event"].show((Span(" "), *latest(snapshot, width - 2, look), Span(" ")))
        if status.playing is not None:
            self._bars["transport"].show(
                bars.transport(status.playing, width, look, keys=bars.transport_keys(self.owner.keys))
            )
        keys = self.footer_keys(frame, "live", "running", "everywhere")
        self._bars["footer"].show(bars.footer(keys, width, look, own_share=frame.own_share))

    # Pages

    def _arrange(self) -> None:
        """Lay the page out anew."""
        has_transport = self.owner.frame.status.playing is not None
        self._places.page = arranged(*self.size, page=self._page, has_transport=has_transport)
        self._page = self._places.page.page
        # Asked for by a child: only that makes the screen forget where its children were.
        for child in self.children[:1]:
            child.refresh(layout=True)
        self.owner.want_text(is_wanted="text" in self._places.page.regions)

    def _turn_to(self, page: int) -> None:
        if page != self._page and 0 <= page < len(self._places.page.pages):
            self._page = page
            self._arrange()
            self.call_after_refresh(self.show_again)

    def action_page(self, direction: int) -> None:
        """Turn to the next page, or the one before; round the ends."""
        n_pages = len(self._places.page.pages)
        if n_pages > 1:
            self._turn_to((self._page + direction) % n_pages)

    def _focusable(self) -> list[str]:
        return ["verdict", *(pane for panes in self._places.page.pages for pane in panes)]

    def action_focus_pane(self, direction: int) -> None:
        """Focus the next pane, or the one before, wherever it is."""
        names = self._focusable()
        focused = self.focused
        if focused is None or focused.id not in names:
            here = self._places.page.pages[self._page][0] if self._places.page.pages else "verdict"
            self._focus(here)
            return
        self._focus(names[(names.index(focused.id) + direction) % len(names)])

    def _focus(self, name: str) -> None:
        self._turn_to(self._places.page.page_of(name))
        self._views[name].focus(scroll_visible=False)

    def action_unfocus(self) -> None:
        """Focus nothing, and have lists that were scrolled begin with their beginning again."""
        for view in self._views.values():
            view.scroll_rows(None)
        self.set_focus(None)

    def action_select(self, direction: int) -> None:
        """Scroll the list that is focused, or choose another request for its text to be shown."""
        focused = self.focused
        if isinstance(focused, PaneView) and focused.pane.is_list:
            focused.scroll_rows(direction)
            return
        ids = [request.id for request in self.owner.frame.snapshot.requests]
        if ids:
            here = self._selection(self.owner.frame.snapshot)
            index = ids.index(here) if here in ids else 0
            self._selected = ids[(index + direction) % len(ids)]
            self.show_again()

    def action_pane_help(self) -> None:
        """Explain the focused pane."""
        focused = self.focused
        self.owner.explain_pane(focused.pane if isinstance(focused, PaneView) else PANES["verdict"])
