"""The systems that whet runs on."""

NOT_ON_WINDOWS = (
    "whet runs on Linux and macOS; on Windows, use it in WSL 2 (wsl --install) or in a Linux container"
)
