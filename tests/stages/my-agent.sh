# What the reader of docs/my-agent.md has is on the page.
# Where the page searches for long, fewer proposals:
#: --release -> --release --reflections 3
