// Verify bundles with @sigstore/verify: node interop.mjs MODULES KEY BUNDLE...; prints one line per bundle.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createHash, createPublicKey } from "node:crypto";

const [modules, keyFile, ...bundles] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity } = require("@sigstore/verify");

const key = createPublicKey(readFileSync(keyFile));
const hint = createHash("sha256").update(key.export({ type: "spki", format: "der" })).digest("base64");
const trust = {
  certificateAuthorities: [],
  timestampAuthorities: [],
  tlogs: [],
  ctlogs: [],
  publicKey: (asked) => {
    if (asked !== hint) throw new Error("unknown key");
    return { publicKey: key, validFor: () => true };
  },
};
const verifier = new Verifier(trust, { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 });
for (const file of bundles) {
  try {
    verifier.verify(toSignedEntity(bundleFromJSON(JSON.parse(readFileSync(file)))));
    console.log("ok");
  } catch (error) {
    console.log("no " + error.message);
  }
}
