"""How much a study costs beyond its trials: our workers beside a bare pool of processes, in the same run."""
