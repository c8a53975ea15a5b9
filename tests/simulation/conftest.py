"""Prints the score of the planted bugs at the end of a run."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if "mutants.py::test_a_planted_bug" in report.nodeid and report.when == "call"
    ]
    if reports:
        seen = sum(report.passed for report in reports)
        terminalreporter.write_line(f"planted bugs seen by the simulators: {seen}/{len(reports)}")
