// Writes jobs [first] … [last - 1] as an application in Node does: half of them by plain inserts, half by the function.

const { Client } = require("pg");

async function main() {
  const [first, last] = process.argv.slice(2).map(Number);
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  for (let at = first; at < last; at += 100) {
    await client.query("begin");
    for (let number = at; number < at + 100; number++) {
      const kind = number % 2 ? "Note" : "NoteActive";
      if (number % 4 < 2) {
        await client.query("insert into relay.outbox (kind, payload) values ($1, $2)", [kind, JSON.stringify([number])]);
      } else {
        await client.query("select relay.enqueue($1, $2)", [kind, JSON.stringify([number])]);
      }
    }
    await client.query("commit");
  }
  await client.end();
}

main();
