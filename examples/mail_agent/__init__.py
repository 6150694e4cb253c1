"""An agent that somebody wrote to ask questions of their mail.  Plain Python, no dependencies."""
