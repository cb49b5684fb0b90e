"""The search for the best trainer and parameters, by Optuna (extra `tune`)."""
