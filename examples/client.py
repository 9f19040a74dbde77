"""What does a cluster run, and why not more? `python client.py http://127.0.0.1:8082 DATA_DIR/admin.token`."""

import asyncio
import sys

import llmgw


async def main(url: str, token_file: str) -> None:
    client = llmgw.Client(url, token_file=token_file)
    nodes, models, replicas = await asyncio.gather(client.nodes_async(), client.models_async(), client.replicas_async())
    for node in nodes:
        print(f"{node.hostname}: {node.state}, replicas: {len([r for r in replicas if r.node == node.id])}")
    for model in models:
        print(f"{model.name}: {model.ready_replicas} of {model.desired} serve")
        if model.ready_replicas < model.desired:
            print(await client.explain_async(model.name))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [url, token_file]:
            pass
        case _:
            print(f"usage: {sys.argv[0]} ADMIN_URL TOKEN_FILE", file=sys.stderr)
            sys.exit(2)
    try:
        asyncio.run(main(url, token_file))
    except llmgw.LlmgwError as error:
        sys.exit(f"error: {error}")
