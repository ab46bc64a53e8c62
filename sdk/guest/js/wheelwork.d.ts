// Types of wheelwork.js, for editors and for checking scripts with TypeScript.
declare module "wheelwork" {
  /** Text is sent as UTF-8; what is neither text nor bytes as JSON. */
  type Data = string | Uint8Array | ArrayBuffer | ArrayBufferView | object | number | boolean;

  class Failure extends Error {
    constructor(code: string, message: string, options?: { permanent?: boolean; afterMs?: number });
    code: string;
    permanent: boolean;
    afterMs: number;
  }
  /** Another attempt would meet it again. */
  class Permanent extends Failure { constructor(code: string, message: string); }
  /** Another attempt, not before afterMs, may not meet it. */
  class Retryable extends Failure { constructor(code: string, message: string, afterMs?: number); }
  /** Thrown by a handler that stopped because it was asked to. */
  class Cancelled extends Error { constructor(); }

  /** What a function of the host answers instead of doing its work. */
  class HostError extends Error {
    readonly reason: string;
  }

  interface Entry {
    value: Uint8Array;
    version: number;
    text(): string;
  }
  interface Bucket {
    get(key: string): Entry | undefined;
    put(key: string, value: Data): number;
    /** Sets the value if the entry has the expected version, 0 for no entry; else HostError Conflict. */
    cas(key: string, value: Data, expect: number): number;
    delete(key: string, expect?: number): void;
  }
  interface Response {
    status: number;
    headers: Record<string, string[]>;
    /** Up to n more bytes of the body; none when it has ended. */
    read(n?: number): Uint8Array;
    bytes(): Uint8Array;
    text(): string;
    json(): any;
    close(): void;
  }

  interface Log {
    debug(...parts: unknown[]): void;
    info(...parts: unknown[]): void;
    warn(...parts: unknown[]): void;
    error(...parts: unknown[]): void;
  }

  interface Context {
    readonly input: Uint8Array;
    text(): string;
    json(): any;
    /** run_id, app, job, attempt, max_attempts, planned_at_ms, …, or a variable of the job. */
    param(name: string): string | undefined;
    write(data: Data): void;
    readonly log: Log;
    progress(done: number, total?: number, message?: string): void;
    cancelled(): boolean;
    now(): Date;
    random(n: number): Uint8Array;
    sleep(ms: number): void;
    checkpoint(): Uint8Array | undefined;
    setCheckpoint(data: Data): void;
    kv(bucket: string): Bucket;
    enqueue(run: { job: string; app?: string; input?: Data; key?: string; delayMs?: number }): string;
    map(inputs: Data[]): void;
    secret(name: string): string | undefined;
    http(request: { method?: string; url: string; headers?: Record<string, string | string[]>; body?: Data }): Response;
    count(name: string, value: number): void;
    gauge(name: string, value: number): void;
    observe(name: string, value: number): void;
  }
  const ctx: Context;
  /** What a main file exports. What it returns is appended to the output. */
  type Handler = (ctx: Context) => Data | void | null | Promise<Data | void | null>;
}
