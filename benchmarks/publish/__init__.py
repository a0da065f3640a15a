"""Results as text: terminal tables, the page of all measurements with its charts, and the README's figures."""
