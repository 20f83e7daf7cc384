"""Sessions as files for other programs: tables (CSV, Parquet, JSON), and a trace for Perfetto."""
