// A client of Wheelwork without a library of its own: api.d.ts, the types of all requests
// and answers, is made from the OpenAPI document that the server has, and openapi-fetch
// sends the requests. See README.md.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Job = components["schemas"]["Job"];
type Failure = components["schemas"]["Error"];

const url = process.env.WHEELWORK_URL ?? "http://127.0.0.1:7700";
const token = process.env.WHEELWORK_TOKEN;
if (!token) {
  throw new Error("WHEELWORK_TOKEN is not set: it has the token of the server");
}
const api = createClient<paths>({
  baseUrl: url,
  headers: { Authorization: `Bearer ${token}` },
});

// answer returns the data of a response, or throws what the server says.
function answer<T>(what: string, r: { data?: T; error?: Failure; response: Response }): T {
  if (r.data === undefined) {
    throw new Error(`${what}: HTTP ${r.response.status}: ${r.error?.message}`);
  }
  return r.data;
}

const app = "default";
const job: Job = {
  description: "greets from TypeScript",
  handler: { module: "greet@1" },
  input: "TypeScript",
  timeout: "10s",
};
const applied = answer("apply the job", await api.PUT("/api/v1/apps/{app}/jobs/{name}", {
  params: { path: { app, name: "typed" } },
  body: job,
}));
console.log(`job ${applied.job?.name}: ${applied.result}`);

const list = answer("list the jobs", await api.GET("/api/v1/apps/{app}/jobs", {
  params: { path: { app }, query: { page_size: 10, prefix: "typed" } },
}));
console.log(`jobs: ${list.jobs.map((j) => j.name).join(" ")}`);

// With a key this request can be repeated: it starts one run.
const run = answer("trigger the job", await api.POST("/api/v1/apps/{app}/jobs/{name}:trigger", {
  params: { path: { app, name: "typed" }, header: { "Idempotency-Key": crypto.randomUUID() } },
  body: { wait: "30s" },
}));
const read = answer("read the run", await api.GET("/api/v1/apps/{app}/runs/{id}", {
  params: { path: { app, id: run.id } },
}));
console.log(`run: ${read.state}, ${read.attempts.length} attempt: ${read.output.trimEnd()}`);

// A refused request has an error with a type, too.
const missing = await api.GET("/api/v1/apps/{app}/jobs/{name}", {
  params: { path: { app, name: "not-there" } },
});
if (missing.error === undefined) {
  throw new Error("there is a job not-there");
}
const refused: Failure = missing.error;
console.log(`HTTP ${missing.response.status}, code ${refused.code}: ${refused.message}`);
