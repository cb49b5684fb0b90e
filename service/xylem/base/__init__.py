"""What every part of the service uses: errors, settings, logs, rows. It imports no other part."""
