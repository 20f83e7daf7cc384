"""The present of a session, kept up while its records come: windows, series, what each change bought, the snapshot."""
