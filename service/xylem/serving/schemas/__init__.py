"""What requests say, as pydantic models: the one description of
each field, whatever brings the bytes.
"""
