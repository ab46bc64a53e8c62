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
  }
  const ctx: Context;
  /** What a main file exports. What it returns is appended to the output. */
  type Handler = (ctx: Context) => Data | void | null | Promise<Data | void | null>;
}
