"""The evolution of readable resources: code, prompts, constants, tables and files of values.

Each room uses those before it: `editing` (texts and the edits that need no model), `agents` (what of somebody's agent
may change, and how a candidate of it is called), `search` (who proposes, what is judged, who has children), `prompts`
(reflection, and the race of what it wrote), `repair` (one weak part, by what people said).  The files beside them are
the commands: rows or thumbs in, a proven Bundle out.
"""
