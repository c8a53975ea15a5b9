"""Tables: rows in Parquet files, replaced and deleted by group, each commit one conditional write of a head."""
