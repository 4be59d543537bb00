// Compares gate.ts with the vectors. It prints what differs, and ends with status 1
// if anything does. Its arguments are the directory of the vectors and the
// connection string of a Postgres database in which it may create a table.

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { Client } from "pg";
import { admit, parse, raise, Refused, schema } from "./gate";

const [, , vectors, database] = process.argv;
const read = (name: string) => JSON.parse(readFileSync(`${vectors}/${name}.json`, "utf8"));
let checked = 0;
let wrong = 0;

function expect(what: string, want: unknown, got: unknown) {
  checked++;
  if (!isDeepStrictEqual(want, got)) {
    wrong++;
    console.log(`${what}: want`, want, "got", got);
  }
}

async function outcome(call: () => unknown): Promise<unknown> {
  try {
    return await call();
  } catch (refused) {
    if (!(refused instanceof Refused)) throw refused;
    return { reason: refused.reason, ...(refused.newest && { newest: refused.newest.toString() }) };
  }
}

function token(header: string) {
  const { key, fence } = parse(header);
  return { key, fence: fence.toString() };
}

async function main() {
  for (const { header, want } of read("tokens")) {
    expect(header, want, await outcome(() => token(header)));
  }

  const client = new Client({ connectionString: database });
  await client.connect();
  await client.query(schema);
  const write = async (header?: string) => {
    const token = parse(header);
    await client.query("BEGIN");
    try {
      await admit(client, token);
      // The write that the token guards belongs here.
      await client.query("COMMIT");
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    }
    return {};
  };
  for (const { header, want } of read("verdicts")) {
    expect(`write ${header}`, want, await outcome(() => write(header ?? undefined)));
  }
  await client.end();

  const postgres = read("sql").find((d: { dialect: string }) => d.dialect === "Postgres");
  expect("schema", postgres.schema, [schema]);
  expect("raise", postgres.raise, raise.replace(/\s+/g, " "));

  console.log(`${checked} checked, ${wrong} wrong`);
  process.exitCode = wrong > 0 ? 1 : 0;
}

main();
