"""Documents with tables, charts and figures, and the reports that are made of them."""
