"""Logs: templates learnt from lines, counts per minute, and one alert for each incident."""
