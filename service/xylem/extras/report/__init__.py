"""Pictures and pages of HTML of reports, drawn by matplotlib (extra `report`)."""
