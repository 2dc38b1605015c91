// Reads {secret, headers, body} from standard input, says what the library makes of it.
import { readFileSync } from "node:fs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const { secret, headers, body } = JSON.parse(readFileSync(0, "utf8"));
try {
  const verified = new Webhook(secret).verify(body, headers);
  console.log(JSON.stringify({ verified }));
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.log(JSON.stringify({ refused: error.message }));
}
