"""Start the local model server, and say how to use it."""

import argparse

import uvicorn

from examples.model_server.rules import by_the_script
from examples.model_server.server import ModelServer, saying


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=8123, help="on 127.0.0.1 (default: %(default)s)")
    port: int = parser.parse_args().port
    address = f"http://127.0.0.1:{port}"
    print("A model server that answers by rules, on this machine only. In another terminal, one of:")
    print(f"  OPENAI_BASE_URL={address}/v1 OPENAI_API_KEY=local make demo MODEL=openai:local")
    print(f"  OPENAI_BASE_URL={address}/v1 OPENAI_API_KEY=local make demo MODEL=openai-chat:local")
    print(f"  ANTHROPIC_BASE_URL={address} ANTHROPIC_API_KEY=local make demo MODEL=anthropic:local")
    print("Ctrl-C ends it.", flush=True)
    uvicorn.Server(ModelServer(saying(by_the_script)).config(port)).run()


if __name__ == "__main__":
    main()
