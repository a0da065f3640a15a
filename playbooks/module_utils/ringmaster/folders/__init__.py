"""The folders of jobs."""
