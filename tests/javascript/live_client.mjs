// Uses graphql-ws as it comes against a server, and says as JSON what it made of it.
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const [url] = process.argv.slice(-1);
const said = {};
const client = createClient({ url, webSocketImpl: WebSocket, keepAlive: 50 });

function first(query, variables) {
  return new Promise((resolve) => {
    let stop = () => {};
    const done = (answer) => {
      resolve(answer);
      setTimeout(() => stop());
    };
    stop = client.subscribe({ query, variables }, { next: done, error: done, complete() {} });
  });
}

said.query = await first(
  '{ positions(where: {account: {_like: "js-%"}}, order_by: {account: asc}) { account quantity } }',
);
said.mutation = await first(
  `mutation { create_positions_trigger(input: {name: "js", webhook: "https://a.example/",
    match: {account: {_eq: "a"}}}) { name } }`,
);
said.refused = await first("subscription { nothing { operation } }");
said.filter = await first("subscription { positions(where: {account: {_eq: null}}) { operation } }");

const update = "{ operation data { account quantity } }";
said.both = await Promise.all(
  ["js-a", "js-b"].map((account) =>
    first(
      `subscription ($account: String!) { positions(where: {account: {_eq: $account}}) ${update} }`,
      { account },
    ),
  ),
);
said.pong = await new Promise((resolve) => {
  client.on("pong", (received) => received && resolve(true));
  first("subscription { positions(where: {_or: []}) { operation } }");
});

const closed = new Promise((resolve) => client.on("closed", ({ code }) => resolve(code)));
await client.dispose();
said.closed = await closed;

console.log(JSON.stringify(said));
process.exit(0);
