"""When the database is queried during generation, and when generation waits for it: one file a
schedule.
"""
