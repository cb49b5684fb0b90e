"""Prediction: opened models answer rows; live models follow the store."""
