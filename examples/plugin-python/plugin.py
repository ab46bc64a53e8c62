#!/usr/bin/env python3
"""A plugin of Wheelwork in Python: a program whose functions are handlers for jobs.

A host starts it when its operator allows it, and jobs name plugin:NAME/shout and
plugin:NAME/countdown. It needs grpcio, protobuf and cryptography and nothing else: what
speaks to the host is below the handlers, and made to be copied. README.md tells how to
try it.
"""

import base64
import concurrent.futures
import datetime
import os
import queue
import sys
import threading
import time
import traceback

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import descriptor_pool, message_factory

# ---- The handlers. Each takes a Task and returns bytes.


def shout(task):
    """Gives the input back in capitals."""
    try:
        text = task.input.decode()
    except UnicodeDecodeError as err:
        raise Permanent(f"the input is no text in UTF-8: {err}") from err
    task.log(f"shouting {len(text)} characters")
    return text.upper().encode()


def countdown(task):
    """Counts down from the input, ten a second, and ends when it is asked to."""
    total = int(task.input)
    for n in range(total, 0, -1):
        task.progress(total - n, total, "counting")
        if task.cancelled.wait(0.1):
            raise Cancelled()
    return b"lift-off"


HANDLERS = {"shout": shout, "countdown": countdown}
CONCURRENCY = 8

# ---- What speaks to the host.


class Permanent(Exception):
    """Another try cannot help."""


class Cancelled(Exception):
    """The handler ended because it was asked to."""


class Task:
    """One attempt of one run. Its fields are those of Task in plugin.proto."""

    def __init__(self, message, out):
        self.message = message
        self.out = out
        self.cancelled = threading.Event()

    def __getattr__(self, name):
        return getattr(self.message, name)

    def log(self, text, level=1):
        """Writes lines to the log of the run: level 0 debug, 1 info, 2 warn, 3 error."""
        for line in text.splitlines():
            self.out.put(("logs", Log(id=self.id, level=level, text=line)))

    def progress(self, done, total=0, message=""):
        self.out.put(("progress", Progress(id=self.id, done=done, total=total, message=message)))

    def run(self):
        start = time.monotonic()
        result = Result(id=self.id)
        try:
            result.output = HANDLERS[self.handler](self)
            result.outcome = SUCCEEDED
        except Permanent as err:
            result.outcome, result.error = PERMANENT, str(err)
        except Cancelled:
            result.outcome, result.error = STOPPED, "cancelled"
        except Exception as err:  # whatever a handler does wrong is its own failure, not the plugin's
            result.outcome, result.error = RETRYABLE, f"{type(err).__name__}: {err}"
            result.code, result.trace = "exception", traceback.format_exc()
        result.duration_us = max(int((time.monotonic() - start) * 1e6), 1)
        self.out.put(("results", result))


def describe(_request, _context):
    return DescribeResponse(version="1.0", handlers=list(HANDLERS), concurrency=CONCURRENCY)


def work(requests, _context):
    """Runs tasks until the host says that nothing more comes."""
    out = queue.Queue()
    tasks = {}

    def take():
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            try:
                for message in requests:
                    for m in message.tasks:
                        tasks[m.id] = task = Task(m, out)
                        pool.submit(task.run)
                    for c in message.cancels:
                        if c.id in tasks:
                            tasks[c.id].cancelled.set()
            except grpc.RpcError:  # the host is gone
                for task in list(tasks.values()):
                    task.cancelled.set()
        out.put(None)

    threading.Thread(target=take, daemon=True).start()
    ended = False
    while not ended:
        items = [out.get()]  # and what has come besides goes into the same message
        while len(items) < 256 and not out.empty():
            items.append(out.get())
        ended = items[-1] is None  # nothing comes behind it
        message = FromPlugin()
        for kind, value in filter(None, items):
            getattr(message, kind).append(value)
            if kind == "results":
                tasks.pop(value.id, None)
        yield message


def certificate():
    """Makes the key and the certificate by which the host knows this process."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.utcnow()
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=10000))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem, cert


def main():
    if os.environ.get("WHEELWORK_PLUGIN") != "f4b1d3b6-handlers-for-jobs":
        sys.exit("this program is a plugin of Wheelwork: allow it with --plugins of `wheelwork host`, which starts it")
    key, cert = certificate()
    pool = concurrent.futures.ThreadPoolExecutor(8)
    server = grpc.server(pool, options=[("grpc.max_receive_message_length", 16 << 20)])

    def shutdown(_request, _context):
        threading.Thread(target=lambda: server.stop(grace=5)).start()
        return b""

    def raw(answer):
        return grpc.unary_unary_rpc_method_handler(answer)

    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "wheelwork.plugin.v1.Plugin",
                {
                    "Describe": grpc.unary_unary_rpc_method_handler(
                        describe, DescribeRequest.FromString, DescribeResponse.SerializeToString
                    ),
                    "Work": grpc.stream_stream_rpc_method_handler(
                        work, ToPlugin.FromString, FromPlugin.SerializeToString
                    ),
                },
            ),
            # HealthCheckResponse{status: SERVING}
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": raw(lambda *_: b"\x08\x01")}),
            grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": raw(shutdown)}),
        )
    )
    credentials = grpc.ssl_server_credentials(
        [(key, cert.public_bytes(serialization.Encoding.PEM))],
        root_certificates=os.environ["PLUGIN_CLIENT_CERT"].encode(),
        require_client_auth=True,
    )
    address = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    server.add_secure_port("unix:" + address, credentials)
    server.start()
    shown = base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode().rstrip("=")
    print(f"1|1|unix|{address}|grpc|{shown}", flush=True)

    # The host holds the other end of standard input. Its end means that the host is dead.
    def orphaned():
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=orphaned, daemon=True).start()
    server.wait_for_termination()


# plugin.proto, compiled: so that the program is one file, whose digest says all that it is.
PROTO = """
ChZwbHVnaW4vdjEvcGx1Z2luLnByb3RvEhN3aGVlbHdvcmsucGx1Z2luLnYxIiUKD0Rlc2NyaWJlUmVxdWVzdBISCgRob3N0GAEgASgJUgRob3N0ImoK
EERlc2NyaWJlUmVzcG9uc2USGAoHdmVyc2lvbhgBIAEoCVIHdmVyc2lvbhIaCghoYW5kbGVycxgCIAMoCVIIaGFuZGxlcnMSIAoLY29uY3VycmVuY3kY
AyABKA1SC2NvbmN1cnJlbmN5InIKCFRvUGx1Z2luEi8KBXRhc2tzGAEgAygLMhkud2hlZWx3b3JrLnBsdWdpbi52MS5UYXNrUgV0YXNrcxI1CgdjYW5j
ZWxzGAIgAygLMhsud2hlZWx3b3JrLnBsdWdpbi52MS5DYW5jZWxSB2NhbmNlbHMirAEKCkZyb21QbHVnaW4SNQoHcmVzdWx0cxgBIAMoCzIbLndoZWVs
d29yay5wbHVnaW4udjEuUmVzdWx0UgdyZXN1bHRzEjkKCHByb2dyZXNzGAIgAygLMh0ud2hlZWx3b3JrLnBsdWdpbi52MS5Qcm9ncmVzc1IIcHJvZ3Jl
c3MSLAoEbG9ncxgDIAMoCzIYLndoZWVsd29yay5wbHVnaW4udjEuTG9nUgRsb2dzIoEECgRUYXNrEg4KAmlkGAEgASgEUgJpZBIQCgNydW4YAiABKAlS
A3J1bhIQCgNhcHAYAyABKAlSA2FwcBIQCgNqb2IYBCABKAlSA2pvYhIYCgdhdHRlbXB0GAUgASgFUgdhdHRlbXB0EiEKDG1heF9hdHRlbXB0cxgGIAEo
BVILbWF4QXR0ZW1wdHMSHQoKcGxhbm5lZF9tcxgHIAEoA1IJcGxhbm5lZE1zEhgKB2hhbmRsZXIYCCABKAlSB2hhbmRsZXISFAoFaW5wdXQYCSABKAxS
BWlucHV0EhIKBGFyZ3MYCiADKAlSBGFyZ3MSNAoDZW52GAsgAygLMiIud2hlZWx3b3JrLnBsdWdpbi52MS5UYXNrLkVudkVudHJ5UgNlbnYSHQoKdGlt
ZW91dF9tcxgMIAEoA1IJdGltZW91dE1zEiEKDHRyYWNlX3BhcmVudBgNIAEoCVILdHJhY2VQYXJlbnQSEgoEcGFydBgOIAEoBVIEcGFydBIUCgVwYXJ0
cxgPIAEoBVIFcGFydHMSFgoGY292ZXJzGBAgASgDUgZjb3ZlcnMSIQoMb3V0cHV0X2xpbWl0GBEgASgDUgtvdXRwdXRMaW1pdBo2CghFbnZFbnRyeRIQ
CgNrZXkYASABKAlSA2tleRIUCgV2YWx1ZRgCIAEoCVIFdmFsdWU6AjgBIjAKBkNhbmNlbBIOCgJpZBgBIAEoBFICaWQSFgoGcmVhc29uGAIgASgJUgZy
ZWFzb24i7wEKBlJlc3VsdBIOCgJpZBgBIAEoBFICaWQSNgoHb3V0Y29tZRgCIAEoDjIcLndoZWVsd29yay5wbHVnaW4udjEuT3V0Y29tZVIHb3V0Y29t
ZRIWCgZvdXRwdXQYAyABKAxSBm91dHB1dBIUCgVlcnJvchgEIAEoCVIFZXJyb3ISEgoEY29kZRgFIAEoCVIEY29kZRIUCgV0cmFjZRgGIAEoCVIFdHJh
Y2USJAoOcmV0cnlfYWZ0ZXJfbXMYByABKANSDHJldHJ5QWZ0ZXJNcxIfCgtkdXJhdGlvbl91cxgIIAEoA1IKZHVyYXRpb25VcyJeCghQcm9ncmVzcxIO
CgJpZBgBIAEoBFICaWQSEgoEZG9uZRgCIAEoA1IEZG9uZRIUCgV0b3RhbBgDIAEoA1IFdG90YWwSGAoHbWVzc2FnZRgEIAEoCVIHbWVzc2FnZSI/CgNM
b2cSDgoCaWQYASABKARSAmlkEhQKBWxldmVsGAIgASgFUgVsZXZlbBISCgR0ZXh0GAMgASgJUgR0ZXh0KnwKB091dGNvbWUSFwoTT1VUQ09NRV9VTlNQ
RUNJRklFRBAAEhUKEU9VVENPTUVfU1VDQ0VFREVEEAESFQoRT1VUQ09NRV9SRVRSWUFCTEUQAhIVChFPVVRDT01FX1BFUk1BTkVOVBADEhMKD09VVENP
TUVfU1RPUFBFRBAEMq0BCgZQbHVnaW4SVwoIRGVzY3JpYmUSJC53aGVlbHdvcmsucGx1Z2luLnYxLkRlc2NyaWJlUmVxdWVzdBolLndoZWVsd29yay5w
bHVnaW4udjEuRGVzY3JpYmVSZXNwb25zZRJKCgRXb3JrEh0ud2hlZWx3b3JrLnBsdWdpbi52MS5Ub1BsdWdpbhofLndoZWVsd29yay5wbHVnaW4udjEu
RnJvbVBsdWdpbigBMAFCOVo3Z2l0aHViLmNvbS93aGVlbHdvcmtocS93aGVlbHdvcmsvYXBpL3BsdWdpbi92MTtwbHVnaW52MWIGcHJvdG8z
"""

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(base64.b64decode(PROTO))


def _message(name):
    found = _POOL.FindMessageTypeByName("wheelwork.plugin.v1." + name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(_POOL).GetPrototype(found)


DescribeRequest, DescribeResponse, ToPlugin, FromPlugin, Result, Progress, Log = map(
    _message, ["DescribeRequest", "DescribeResponse", "ToPlugin", "FromPlugin", "Result", "Progress", "Log"]
)
SUCCEEDED, RETRYABLE, PERMANENT, STOPPED = 1, 2, 3, 4

if __name__ == "__main__":
    main()
