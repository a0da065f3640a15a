"""Why a job failed: whose end explains the others, and what their words mean. Pure."""
