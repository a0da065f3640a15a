"""This machine as a site: nodes are processes, without SSH, containers or root."""
