"""Nodes: what they shall be, how they are made, reached and waited for, their network and their GPU stand-ins."""
