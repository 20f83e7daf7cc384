"""Sessions as a report to hand on: Markdown for a pull request, or one HTML page with charts that stands alone."""
