"""The tab Logs of the dashboard: timeline, open alerts, new patterns, and the lines behind them."""
