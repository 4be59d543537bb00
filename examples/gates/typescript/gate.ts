// A gate in TypeScript: it parses fencing tokens and admits them in Postgres.

export const schema = `CREATE TABLE IF NOT EXISTS "etcdclaims_fences" (claim_key bytea NOT NULL PRIMARY KEY, fence bigint NOT NULL)`;
export const raise = `INSERT INTO "etcdclaims_fences" AS mark (claim_key, fence) VALUES ($1, $2)
  ON CONFLICT (claim_key) DO UPDATE SET fence = GREATEST(mark.fence, EXCLUDED.fence) RETURNING mark.fence`;

// A bare item of RFC 9651: Decimal, Integer, String, Display String, Token, Byte
// Sequence, Boolean or Date.
const bare =
  String.raw`-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"` +
  "|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/]*={0,2}:|\\?[01]|@-?[0-9]{1,15}";
const parameter = `; *([a-z*][a-z0-9_.*-]*)(?:=(${bare}))?`;
const item = new RegExp(`^ *(?<fence>${bare})(?<parameters>(?:${parameter})*) *$`);

export interface Token { key: string; fence: bigint }

/** The reason is a row of docs/gates.md. newest is the greatest fence admitted. */
export class Refused extends Error {
  constructor(readonly reason: string, readonly newest?: bigint) { super(reason); }
}

/** Parses the value of a Fencing-Token header; undefined means that there is no header. */
export function parse(header: string | undefined): Token {
  if (header === undefined) throw new Refused("MISSING_FENCE");
  const found = header.length <= 4096 ? item.exec(header) : null;
  const { fence: text = "", parameters = "" } = found?.groups ?? {};
  let key: string | undefined;
  try {
    for (const [, name, value] of parameters.matchAll(new RegExp(parameter, "g"))) {
      const decoded = decode(value);
      if (name === "key") key = decoded; // the last of several counts
    }
  } catch { key = undefined; } // not UTF-8
  const digits = /^(?:([0-9]{1,15})|"([1-9][0-9]{15,18})")$/.exec(text); // more digits than an Integer has are a String
  const fence = digits ? BigInt(digits[1] ?? digits[2]) : 0n;
  const bytes = Buffer.byteLength(key ?? "");
  if (key === undefined || fence < 1n || fence >= 1n << 63n || bytes < 1 || bytes > 1024 || /[\x00-\x1f\x7f-\x9f]/.test(key)) {
    throw new Refused("MALFORMED_FENCE");
  }
  return { key, fence };
}

/** Returns the text of a String or a Display String, undefined for any other bare item. */
function decode(value: string | undefined): string | undefined {
  if (value?.startsWith('"')) return value.slice(1, -1).replace(/\\(.)/g, "$1");
  return value?.startsWith("%") ? decodeURIComponent(value.slice(2, -1)) : undefined;
}

/** What a transaction of node-postgres has. */
export interface Transaction { query(sql: string, values: unknown[]): Promise<{ rows: { fence: string }[] }> }

/** Admits a token in the transaction of the write that it guards, or throws Refused: then roll back. */
export async function admit(tx: Transaction, token: Token): Promise<void> {
  const { rows: [mark] } = await tx.query(raise, [Buffer.from(token.key), token.fence.toString()]);
  if (BigInt(mark.fence) > token.fence) throw new Refused("STALE_FENCE", BigInt(mark.fence));
}
