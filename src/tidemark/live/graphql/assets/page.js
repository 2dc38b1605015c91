"use strict";
(function () {
  const url = location.pathname;
  const socketUrl = location.origin.replace(/^http/, "ws") + url;
  // What the headers editor held when something was last run.
  let headers = {};
  const wsClient = graphqlWs.createClient({
    url: socketUrl,
    // A connection without subscriptions ends, so the next one is made with the headers of then.
    lazy: true,
    lazyCloseTimeout: 0,
    connectionParams: () => headers,
  });
  const send = GraphiQL.createFetcher({ url, wsClient });
  const fetcher = (parameters, options) => {
    headers = (options && options.headers) || {};
    return send(parameters, options);
  };
  const defaultQuery = [
    "# Ask for rows, or subscribe to them. The docs on the left show every view.",
    "# Callers with a key write it into the headers below:",
    '#   {"Authorization": "Bearer …"}',
    "",
    "{",
    "  __schema {",
    "    subscriptionType {",
    "      fields {",
    "        name",
    "        description",
    "      }",
    "    }",
    "  }",
    "}",
    "",
  ].join("\n");
  ReactDOM.createRoot(document.getElementById("graphiql")).render(
    React.createElement(GraphiQL, { fetcher, defaultQuery, shouldPersistHeaders: false }),
  );
})();
