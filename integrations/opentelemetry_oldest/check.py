"""The first release with the OTLP/HTTP exporter (1.5.0, of 2021) does what the newest does.

python -m integrations.opentelemetry_oldest.check PYTHON
"""

from __future__ import annotations

import sys

from integrations.opentelemetry_newest.check import main

if __name__ == "__main__":
    main(sys.argv[1])
