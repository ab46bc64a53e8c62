package house

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/wheelworkhq/wheelwork"

// everything, as the only entry of a list, allows all imports.
var everything = []string{"..."}

// room is a folder, including the subfolders without a row of their own.
type room struct {
	dir string
	may []string // the other rooms that it may import
	why string   // the reason; follows "because"
}

// rooms lists the imports that are allowed between our packages. Tests may import any
// package. Every package belongs to a row: a new room is a deliberate decision.
var rooms = []room{
	{"api/v1", nil, "it is the contract between processes: an importer must get nothing else"},
	{"api/plugin/v1", nil, "it is the contract between hosts and plugins: an importer must get nothing else"},
	{"job", []string{"api/v1", "internal/hashtable", "internal/prefetch", "internal/wire", "internal/wire/fields", "job/expr", "job/naming", "job/route", "job/schedule", "job/trigger"}, "the nouns and their rules are pure: no storage and no network, so that a test can replay any history"},
	{"job/naming", nil, "the rule for names is one, wherever a name is read"},
	{"job/errorkind", nil, "the kind of an error follows from its text alone, so that a page and a command group errors alike"},
	{"job/expr", []string{"job/naming"}, "the value of an expression follows from the results that it is given"},
	{"job/reason", []string{"api/v1"}, "a reason is a code with values, and each reader makes a sentence of it"},
	{"job/route", []string{"api/v1", "job/reason"}, "the choice of a host follows from the run and the known hosts alone"},
	{"job/schedule", []string{"api/v1", "job/naming", "job/schedule/cron"}, "planned times are pure functions of a schedule and an instant"},
	{"job/schedule/cron", []string{"internal/spelling"}, "the next time of a line is a pure function, which the console and the command use without a server"},
	{"job/trigger", []string{"api/v1", "job/naming"}, "whether an event starts a job follows from the two alone"},
	{"sched/wheel", nil, "timers are plain data: the loop that owns them brings the clock"},
	{"sched/wheel/alarm", nil, "it wakes one goroutine at one time, whatever for"},
	{"mq", nil, "it is a log of bytes and does not know what a job is"},
	{"mq/queue", []string{"mq"}, "it carries bytes and does not know what a message means"},
	{"ingress", []string{"api/v1", "mq", "mq/queue"}, "it keeps commands until the scheduler applies them, and does not know how"},
	{"journal", nil, "it orders records and does not know what they mean"},
	{"journal/local", []string{"internal/pool", "journal", "mq"}, "it implements the journal on mq and does not know what a record means"},
	{"journal/etcd", []string{"journal"}, "it implements the journal on etcd and does not know what a record means"},
	{"journal/conform", []string{"journal"}, "it is what every journal has to keep, and knows none of them"},
	{"store", nil, "it remembers rows and does not decide: scheduling asks it, never the other way round"},
	{"backup", nil, "it is a format: a reader can check a backup without the server that made it"},
	{"backup/encryption", []string{"backup"}, "it turns bytes into bytes that only the owner of an identity can read, whatever they are"},
	{"backup/archive", []string{"api/v1", "backup", "backup/encryption", "cluster", "internal/datadir", "internal/version", "modules", "mq", "mq/queue", "store"}, "what is in a backup is decided once, for running servers, stopped ones and standbys"},
	{"backup/planned", []string{"api/v1", "backup/archive", "backup/encryption", "internal/datadir", "job/schedule"}, "it decides when a backup is made, tried and removed: what is in one, and which server makes it, it is told"},
	{"modules", nil, "it keeps bytes by digest: running them is the runtime's"},
	{"modules/transfer", []string{"api/v1", "modules"}, "it carries modules between processes: what they are for is known at both ends"},
	{"modules/oci", []string{"modules"}, "it carries bytes in and out and does not know their purpose"},
	{"sched/fair", []string{"api/v1", "internal/prefetch", "job"}, "shares are counted from runs and their durations alone"},
	{"sched/hosts", []string{"api/v1", "job", "sched/fair"}, "it is what is known of a host, and decides nothing"},
	{"sched/projection", []string{"api/v1", "internal/prefetch", "job", "store"}, "rows follow from the slots: the loop says which have changed"},
	{"sched/core", []string{"access", "access/audit", "alert/channel", "alert/definition", "alert/rule", "alert/state", "api/v1", "event", "internal/pool", "internal/prefetch", "internal/timeheap", "internal/wire/codec", "job", "job/naming", "job/reason", "job/route", "job/schedule", "journal", "modules", "sched/fair", "sched/hosts", "sched/projection", "sched/wheel", "sched/wheel/alarm", "store"}, "decisions follow from a clock, a journal and messages, so a test can drive them step by step"},
	{"sched/slotmove", []string{"api/v1", "job", "job/naming", "sched/core"}, "it carries slots, and the loop decides about them"},
	{"sched/api", []string{"access", "access/audit", "access/authority", "alert/definition", "alert/notification", "alert/rule", "alert/state", "api/v1", "event", "internal/keyring", "internal/version", "internal/webhook", "internal/wire/codec", "job", "job/errorkind", "job/naming", "job/reason", "job/schedule", "job/trigger", "modules", "modules/transfer", "sched/core", "sched/hosts", "store"}, "it turns messages into calls of the loop, and decides nothing"},
	{"sched", []string{"access", "access/audit", "access/authority", "alert/channel", "alert/definition", "alert/rule", "alert/sender", "alert/state", "api/v1", "internal/keyring", "internal/methods", "job", "journal", "modules", "sched/api", "sched/core", "sched/projection", "sched/slotmove", "store"}, "servers and hosts meet in api/v1 alone: a server must not know how a task is executed"},
	{"nameserver/balance", nil, "ownership is a pure function, so a simulation can try it on larger installations than any that exist"},
	{"nameserver", []string{"api/v1", "internal/version", "nameserver/balance"}, "it knows live servers and their apps, and not the contents of jobs"},
	{"runtime", nil, "it is the words that every engine shares"},
	{"runtime/abi", nil, "it is the contract with guests: names and numbers alone"},
	{"runtime/script", nil, "it is the format of scripts and the list of their interpreters: pure, so that packer and runner agree"},
	{"runtime/local", []string{"runtime"}, "it stands in for the services of a server, wherever a handler is tried without one"},
	{"runtime/manifest", []string{"runtime"}, "the manifest of a module has one reader, which the upload verifier, the server and the command share"},
	{"runtime/wasm", []string{"runtime", "runtime/abi", "runtime/manifest", "runtime/script", "runtime/wasm/internal/codecache", "runtime/wasm/internal/cpython", "runtime/wasm/internal/files", "runtime/wasm/internal/guest", "runtime/wasm/internal/hostabi", "runtime/wasm/internal/inspect", "runtime/wasm/internal/lines", "runtime/wasm/internal/memory", "runtime/wasm/internal/meter", "runtime/wasm/internal/quickjs"}, "it runs one task from bytes that it is given: fetching, storing and reporting are the host's"},
	{"runtime/wasm/internal/cpython", []string{"runtime/abi", "runtime/script", "runtime/wasm/internal/guest", "runtime/wasm/internal/hostabi"}, "it answers the requests of one interpreter: it creates no instance"},
	{"runtime/wasm/internal/files", nil, "it is where a guest's paths meet those of the machine: small, and tested without a guest"},
	{"runtime/wasm/internal/binary", nil, "it reads and writes the format of modules and does not know what runs them"},
	{"runtime/wasm/internal/codecache", nil, "it stores bytes in files and does not know their meaning"},
	{"runtime/wasm/internal/guest", []string{"runtime", "runtime/abi", "runtime/wasm/internal/lines", "runtime/wasm/internal/memory", "runtime/wasm/internal/meter", "runtime/wasm/internal/oneline"}, "it decides when a guest pauses and ends, and does not know what the guest calls"},
	{"runtime/wasm/internal/hostabi", []string{"runtime", "runtime/abi", "runtime/manifest", "runtime/wasm/internal/binary", "runtime/wasm/internal/guest", "runtime/wasm/internal/meter", "runtime/wasm/internal/oneline"}, "it serves the calls of any guest and does not know the module or the instance"},
	{"runtime/wasm/internal/inspect", []string{"runtime/abi", "runtime/manifest", "runtime/script", "runtime/wasm/internal/binary", "runtime/wasm/internal/hostabi", "runtime/wasm/internal/lines", "runtime/wasm/internal/meter", "runtime/wasm/internal/oneline", "runtime/wasm/internal/quickjs"}, "it reads modules that are not trusted and runs none"},
	{"runtime/wasm/internal/lines", nil, "it reads the line tables of compilers and does not know the module around them"},
	{"runtime/wasm/internal/memory", nil, "it counts and reserves memory and does not know whose it is"},
	{"runtime/wasm/internal/meter", []string{"runtime/wasm/internal/binary"}, "it changes code and runs none"},
	{"runtime/wasm/internal/oneline", nil, "it formats texts"},
	{"runtime/wasm/internal/quickjs", []string{"runtime/abi", "runtime/script", "runtime/wasm/internal/guest", "runtime/wasm/internal/hostabi"}, "it drives one interpreter in an instance that it is given"},
	{"runtime/process", []string{"runtime", "runtime/sandbox"}, "it starts and ends programs, whatever for"},
	{"runtime/sandbox", nil, "it encloses a thread in walls of the kernel, whatever the thread starts"},
	{"runtime/plugin", []string{"api/plugin/v1", "runtime", "runtime/process"}, "it speaks with programs on this machine alone: fetching, storing and reporting are the host's"},
	{"runtime/builtin", []string{"runtime", "runtime/process"}, "it runs one task: requests go through the given sender, programs through runtime/process"},
	{"host/session", []string{"api/v1", "internal/hashtable"}, "programs of other people carry it inside sdk/worker: it speaks the Work protocol and does not know what a task runs"},
	{"host", []string{"api/v1", "host/session", "internal/pool", "internal/version", "internal/wire/codec", "job", "modules", "modules/transfer", "mq", "runtime"}, "servers and hosts meet in api/v1 alone: a host must not know how its work was scheduled or is remembered"},
	{"host/services", []string{"api/v1", "job", "job/naming", "runtime"}, "it speaks for handlers to the server alone: it must not know how they are executed"},
	{"console", []string{"alert/definition", "alert/rule", "api/v1", "document", "internal/conditions", "internal/scriptkit", "internal/spelling", "internal/version", "job", "job/errorkind", "job/naming", "job/reason", "job/schedule", "job/schedule/cron", "modules", "modules/transfer", "runtime/abi", "runtime/script"}, "it shows and changes state through the API only, with the visitor's own token; scripts are edited as texts and sent as modules"},
	{"document", []string{"api/v1", "internal/spelling"}, "programs of other people read documents through sdk: it knows the messages of the API, and no server and no storage"},
	{"importer", []string{"api/v1", "document", "importer/fires", "importer/rows", "job", "job/naming", "job/schedule", "job/schedule/cron"}, "the documents and the report follow from rows and texts alone, so that a test can compare them with files"},
	{"importer/rows", nil, "it holds rows, wherever they were read"},
	{"importer/fires", nil, "it is there to be compared with job/schedule, so it shares nothing with it"},
	{"importer/dump", []string{"importer/rows"}, "it reads bytes that are not trusted, and executes nothing"},
	{"importer/database", []string{"importer/rows"}, "it reads tables and does not know what is in them"},
	{"sdk", []string{"api/v1", "document", "internal/webhook", "internal/wire/codec"}, "programs of other people import it: it brings the API with the codec of its streams and the signature of events, the language of documents, and no internals beside"},
	{"sdk/worker", []string{"api/v1", "host/session", "sdk"}, "programs of other people import it: it brings the API and the worker's half of its protocol, which a host speaks too, and no other internals"},
	{"bridge/xxljob", []string{"host/session", "internal/datadir", "internal/outbound", "job/naming", "sdk", "sdk/worker"}, "it is a worker and a client as programs of other people are: a server does not know that executors are behind it"},
	{"sdk/worker/conform", nil, "it holds tests only"},
	{"sdk/guest", nil, "it is compiled into guests, which have to stay small"},
	{"sdk/plugin", []string{"api/plugin/v1"}, "programs of other people import it: it brings the contract of plugins and no internals"},
	{"sdk/sdktest", []string{"api/v1", "job/schedule", "sdk/worker"}, "it stands in for a server and its workers before programs of other people: it brings the API, the rules of planned times, which are pure, and no other internals"},
	{"alert/notification", nil, "the texts of a notification follow from its values alone, so that a retry and a preview have the same"},
	{"alert/rule", []string{"alert/notification"}, "when an alert tells what follows from a rule, a group and the events, so that a replay makes the same notifications"},
	{"alert/channel", []string{"alert/notification", "internal/webhook"}, "it makes one attempt for each call, and when to send follows from arguments alone: queues, clocks and programs are its callers'"},
	{"alert/definition", []string{"alert/channel", "alert/notification", "alert/rule", "api/v1", "job", "job/naming", "job/schedule/cron"}, "the messages of the API become rules and channels in one place: what is below knows no message"},
	{"alert/state", []string{"alert/channel", "alert/definition", "alert/notification", "alert/rule", "internal/timeheap", "job/schedule"}, "the alerts of an app follow from events and times alone, so that a replay and a take-over go on with the same ones"},
	{"alert/sender", []string{"alert/channel", "alert/notification", "alert/state"}, "it sends what the owner of the state hands out, and decides nothing"},
	{"alert/command", []string{"alert/channel", "runtime/process"}, "it runs what the operator has declared: channels know names alone"},
	{"environment", []string{"api/v1", "document", "job/schedule"}, "a plan follows from the definitions of both sides: reading them and sending the changes is its callers'"},
	{"event", []string{"api/v1", "job", "job/naming", "job/trigger"}, "what a sender may send follows from its bytes alone: who signed it and what it starts is decided elsewhere"},
	{"internal/methods", []string{"api/v1"}, "what a method needs is said in its definition alone, and read in one place"},
	{"access/audit", []string{"api/v1", "internal/wire", "internal/wire/fields", "job"}, "an event and its hash follow from a record alone"},
	{"access/authority", nil, "what a certificate says follows from its bytes: it reads no clock and no file"},
	{"access/oidc", nil, "a person follows from the answers of a provider alone: it starts no session and knows no roles"},
	{"access", []string{"access/audit", "access/authority", "api/v1", "internal/methods", "job", "job/naming"}, "permissions are checked in one place, against the definitions of the methods"},
	{"internal/transport", []string{"access", "access/authority", "api/v1", "internal/wire/codec"}, "a connection is accepted, limited and guarded before any room hears of it"},
	{"internal/verifier", []string{"api/v1", "modules", "runtime", "runtime/abi", "runtime/local", "runtime/process", "runtime/sandbox", "runtime/script", "runtime/wasm", "sched"}, "an upload is not trusted: one process with limits looks at it"},
	{"cluster", []string{"api/v1", "internal/wait", "job", "job/naming", "journal/etcd", "nameserver", "nameserver/balance", "sched"}, "what a server knows of the others is one watched table, and all decisions follow from it"},
	{"cluster/life", nil, "the life of a partition follows from events and from what a server sees: a test covers every phase with every event"},
	{"operation", []string{"access", "access/audit", "alert/definition", "api/v1", "internal/conditions", "job", "job/naming"}, "it makes each change with a call to the API, as any client does"},
	{"cluster/router", []string{"access", "access/audit", "api/v1", "cluster", "internal/methods", "internal/transport", "internal/version", "internal/wait", "job", "job/naming", "modules", "modules/transfer", "sched"}, "there is one way to the owner of a partition"},
	{"cluster/slotmover", []string{"api/v1", "cluster", "cluster/router", "internal/wait", "job", "sched"}, "a slot moves in steps that any later owner can repeat"},
	{"cluster/partition", []string{"api/v1", "backup/archive", "cluster", "cluster/life", "cluster/router", "cluster/slotmover", "internal/datadir", "internal/wait", "journal", "journal/etcd", "modules", "sched", "store"}, "it carries out what cluster/life decides, and is the only room that opens and closes what a partition has"},
	{"cluster/membership", []string{"api/v1", "cluster", "cluster/router", "cluster/slotmover", "internal/version", "job/naming", "nameserver", "nameserver/balance"}, "it answers operators, hosts and other servers from the cluster view"},
	{"cluster/backups", []string{"api/v1", "backup", "backup/archive", "backup/encryption", "cluster", "cluster/router", "internal/datadir", "modules", "mq/queue", "store"}, "the partitions of a cluster come into one backup, whichever servers own them"},
	{"internal/datadir", []string{"mq", "store"}, "the names in a data directory have one owner, which locks it"},
	{"internal/conditions", []string{"api/v1"}, "what a request selects is told in one form: the console and the audit log have the same texts"},
	{"internal/credential", []string{"access", "internal/datadir", "internal/keyring", "internal/transport"}, "tokens and keys are read in one place, which refuses files that others may read"},
	{"internal/wait", nil, "it waits for a time or the end of a context"},
	{"node", everything, "it wires the rooms together"},
	{"node/certificates", []string{"access", "access/authority", "api/v1", "internal/credential", "internal/datadir", "internal/keyring", "internal/transport", "internal/wait"}, "it has the certificate of a process and its files, and knows no other part of the process"},
	{"node/local", []string{"internal/credential", "internal/datadir", "internal/wait", "node", "node/certificates", "runtime/process", "sdk"}, "it starts the program as its users do, and knows its flags, files and API"},
	{"node/offline", []string{"access", "backup", "backup/archive", "backup/planned", "cluster", "internal/datadir", "journal/etcd", "journal/local", "modules", "mq", "mq/queue", "sched", "store"}, "work on a stopped server needs its files and no process"},
	{"cmd/wheelwork", []string{"internal/cli"}, "it is the program: its commands are in internal/cli"},
	{"internal/cli", []string{"internal/cli/access", "internal/cli/alert", "internal/cli/app", "internal/cli/backup", "internal/cli/bridge", "internal/cli/cluster", "internal/cli/command", "internal/cli/config", "internal/cli/connect", "internal/cli/cron", "internal/cli/definition", "internal/cli/describe", "internal/cli/event", "internal/cli/failure", "internal/cli/job", "internal/cli/migrate", "internal/cli/module", "internal/cli/mq", "internal/cli/operation", "internal/cli/output", "internal/cli/run", "internal/cli/serve", "internal/cli/setup", "internal/cli/store", "internal/credential", "internal/version", "node", "runtime/process"}, "it assembles the commands: only it knows all of them"},
	{"internal/cli/command", []string{"internal/spelling"}, "it builds commands and does not know what they do"},
	{"internal/cli/output", []string{"internal/cli/command"}, "it prints records and does not know what is in them"},
	{"internal/cli/connect", []string{"internal/cli/command", "internal/cli/contexts", "internal/credential", "sdk"}, "a command reaches a server as any other client does"},
	{"internal/cli/contexts", []string{"internal/cli/command", "internal/credential", "internal/datadir", "internal/spelling", "job/naming"}, "it stores names of servers and calls none"},
	{"internal/cli/setup", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/contexts", "internal/cli/output", "internal/spelling", "job/naming"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/process", []string{"internal/cli/command", "mq", "node"}, "commands that start, prepare or repair servers share these flags and do not import each other"},
	{"internal/cli/runview", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/output", "sdk"}, "commands about jobs and about runs show runs in the same way and do not import each other"},
	{"internal/cli/access", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/contexts", "internal/cli/delivery", "internal/cli/output", "internal/credential", "node/offline", "sdk"}, "it has the commands of one subject, and writes to the files of a stopped server"},
	{"internal/cli/alert", []string{"alert/definition", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/app", []string{"api/v1", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/credential", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/backup", []string{"api/v1", "backup/archive", "backup/encryption", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/credential", "node", "node/offline", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/operation", []string{"internal/cli/bulk", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/cluster", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/cli/process", "journal/etcd", "node", "node/local", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/cron", []string{"internal/cli/command", "internal/cli/output", "job/schedule/cron"}, "it explains expressions without a server"},
	{"internal/cli/definition", []string{"document", "environment", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "job/schedule", "job/schedule/cron", "sdk"}, "it has the commands of one subject, and plans schedules without a server to compare them"},
	{"internal/cli/delivery", []string{"internal/cli/output", "internal/datadir", "internal/wait", "sdk"}, "it reads events as any other client does, and knows no command"},
	{"internal/cli/describe", []string{"document", "internal/cli/command", "internal/cli/output"}, "it describes documents without a server"},
	{"internal/cli/bulk", []string{"internal/cli/command", "internal/cli/output", "sdk"}, "it has a command's way for many objects: it does not know the objects"},
	{"internal/cli/event", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/output", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/job", []string{"internal/cli/bulk", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/cli/runview", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/migrate", []string{"document", "importer", "importer/database", "importer/dump", "importer/rows", "internal/cli/command", "internal/cli/output", "job/schedule/cron"}, "it converts jobs without a server"},
	{"internal/cli/module", []string{"api/v1", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/interpreter", "internal/outbound", "internal/scriptkit", "internal/toolchain", "modules", "modules/oci", "runtime", "runtime/abi", "runtime/local", "runtime/manifest", "runtime/script", "runtime/wasm", "sdk", "sdk/guest"}, "it has the commands of one subject, and runs handlers without a server"},
	{"internal/cli/mq", []string{"api/v1", "ingress", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/cli/process", "mq", "mq/queue", "node", "node/offline", "sdk", "store"}, "it has the commands of one subject, and opens the logs of a stopped server"},
	{"internal/cli/failure", []string{"internal/cli/command", "internal/cli/connect", "internal/cli/output", "job/errorkind", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/run", []string{"internal/cli/bulk", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/cli/runview", "sdk"}, "it has the commands of one subject: commands do not import each other"},
	{"internal/cli/serve", []string{"backup/planned", "internal/cli/command", "internal/cli/config", "internal/cli/connect", "internal/cli/output", "internal/cli/process", "internal/transport", "internal/verifier", "mq", "node", "runtime/builtin", "runtime/plugin", "runtime/wasm", "sdk"}, "it starts the processes of node, which wires them"},
	{"internal/cli/config", []string{"internal/cli/command", "internal/spelling"}, "where a setting comes from does not depend on what it sets"},
	{"internal/cli/bridge", []string{"bridge/xxljob", "internal/cli/command", "internal/cli/connect", "internal/cli/output", "internal/cli/process", "internal/datadir", "sdk", "sdk/worker"}, "it starts bridges, which reach a server as any other worker does"},
	{"internal/cli/store", []string{"internal/cli/command", "internal/cli/output", "internal/cli/process", "node", "node/offline", "store"}, "it opens the stores of a stopped server"},
	{"examples", []string{"sdk", "sdk/guest", "sdk/plugin", "sdk/worker"}, "an example imports what its reader can import"},
	{"bench", []string{"mq", "sched/wheel", "sched/wheel/alarm", "sdk", "sdk/worker", "store"}, "it measures the program from outside, as its users meet it, and the parts that are compared with others or with themselves alone"},
	{"bench/runtime", []string{"bench", "runtime", "runtime/wasm"}, "a call of a guest is shorter than the way to it from outside"},
	{"bench/runtime/guests", nil, "they are programs for guests"},
	{"tools", nil, "the developers' tools are a module of their own"},
	{"tools/screenshots", []string{"sdk", "sdk/worker"}, "it fills a server and looks at its pages, as users do"},
	{"internal/outbound", []string{"runtime"}, "every request for a job goes through one guard, which knows grants and addresses and nothing else of jobs"},
	{"internal/webhook", nil, "senders and receivers share one signature, whatever they sign"},
	{"internal/wire", nil, "it writes and reads fields and knows no message"},
	{"internal/keyring", nil, "it seals and opens bytes and knows no app: the server and the commands read one format of its file"},
	{"internal/spelling", nil, "it compares words and knows none of them"},
	{"internal/hashtable", nil, "it orders numbers by hashes and knows no entry"},
	{"internal/pool", nil, "it owns memory that no object uses, whatever the object was"},
	{"internal/prefetch", nil, "it orders the reads of a loop and knows no object"},
	{"internal/timeheap", nil, "it orders values by time, whatever they are"},
	{"internal/wire/fields", nil, "it has numbers only, so that each package that encodes a message by hand has the same ones"},
	{"internal/wire/codec", []string{"api/v1", "internal/pool", "internal/prefetch", "internal/wire", "internal/wire/fields"}, "it encodes what goes over streams and knows nothing of what it means"},
	{"internal/version", []string{"api/v1"}, "every room may ask it, so it must not ask any"},
	{"internal/scriptkit", []string{"runtime/script", "sdk/guest"}, "the command and the console pack scripts alike"},
	{"internal/interpreter", []string{"runtime/script"}, "it fetches the interpreters of scripts and keeps them: running them is the engine's"},
	{"internal/toolchain", nil, "it starts the compilers of handlers and knows nothing else"},
	{"internal/house", nil, "it holds tests only"},
	{"internal/memconn", nil, "it carries bytes between both sides of a test, whatever they say"},
	{"internal/testkit", nil, "tests of all rooms use it: it knows none of them"},
	{"internal/alerttest", nil, "it holds tests only"},
	{"internal/crash", nil, "it holds tests only"},
	{"internal/history", nil, "it judges what others have recorded: a test of any process can use it"},
}

// forTests are the rooms that only tests may import, also where a room may import
// everything: the program must not depend on what serves its tests.
var forTests = []string{"internal/history", "internal/memconn", "internal/testkit", "journal/conform"}

// supply is an external package, including its subpackages without a row of their own,
// and the only rooms that may import it.
type supply struct {
	path string
	only []string
	why  string // the reason; follows "because"
}

// supplies lists the external packages that rooms may import. A package that is neither
// listed nor in the standard library is refused: a new dependency is a deliberate
// decision. Packages that only tests import need no row.
var supplies = []supply{
	{"github.com/dgraph-io/badger", []string{"bench", "store"}, "keys, transactions and the database's quirks are in one place, and another database is a change of one room"},
	{"github.com/coreos/go-oidc/v3/oidc", []string{"access/oidc"}, "the answers of a provider are verified in one place; it is the client that most Go programs use, under the Apache licence, and small"},
	{"golang.org/x/oauth2", []string{"access/oidc"}, "the client of the provider needs it; it is of the Go project, under its licence"},
	{"github.com/wneessen/go-mail", []string{"alert/channel"}, "mails are made and sent in one place; it is the library that Go programs use since net/smtp is frozen, under the MIT licence, and brings nothing beside what the module has"},
	{"filippo.io/age", []string{"backup/encryption"}, "backups are encrypted in one place; it is the implementation by the author of the format, under the BSD licence"},
	{"golang.org/x/crypto", []string{"access"}, "passwords are hashed in one place; it is of the Go project, under its licence"},
	{"github.com/klauspost/compress", []string{"store"}, "the format of compressed rows is that of the store; badger, which the store needs, brings the library"},
	{"github.com/tetratelabs/wazero", []string{"bench/runtime", "runtime/wasm", "runtime/wasm/internal/cpython", "runtime/wasm/internal/files", "runtime/wasm/internal/guest", "runtime/wasm/internal/hostabi", "runtime/wasm/internal/inspect", "runtime/wasm/internal/memory", "runtime/wasm/internal/quickjs"}, "a guest is metered and limited in one place: no way leads around it"},
	{"oras.land/oras-go", []string{"modules/oci"}, "layouts and registries are spoken to in one place; it is the client that the format's own project keeps up, under the Apache licence"},
	{"github.com/opencontainers", []string{"modules/oci"}, "the types of the OCI formats stay where they are read"},
	{"github.com/cockroachdb/pebble", []string{"bench"}, "it is there to be compared with"},
	{"github.com/hibiken/asynq", []string{"bench"}, "it is there to be compared with"},
	{"github.com/redis/go-redis/v9", []string{"bench"}, "the compared queue is set up with it"},
	{"github.com/riverqueue/river", []string{"bench"}, "it is there to be compared with"},
	{"github.com/jackc/pgx/v5", []string{"bench", "importer/database"}, "the compared queue speaks through it, and the tables of other schedulers are read in one place; it is the client that most Go programs use, under the MIT licence"},
	{"github.com/go-sql-driver/mysql", []string{"importer/database"}, "the tables of other schedulers are read in one place; it is the client that most Go programs use, under the MPL 2.0"},
	{"github.com/nats-io", []string{"bench"}, "it is there to be compared with"},
	{"github.com/RussellLuo/timingwheel", []string{"bench"}, "it is there to be compared with"},
	{"go.etcd.io/raft", []string{"bench"}, "the compared log speaks its types"},
	{"go.etcd.io/etcd", []string{"bench", "journal/etcd"}, "the journal's interface is all that the cluster's storage may touch"},
	{"go.uber.org/zap", []string{"journal/etcd"}, "etcd logs with it: there it is led to where everything else logs"},
	{"github.com/hashicorp/go-plugin", []string{"bench/runtime", "runtime/plugin"}, "a plugin is one more engine behind the runtime's interface"},
	{"github.com/hashicorp/go-hclog", []string{"bench/runtime", "runtime/plugin"}, "go-plugin wants a logger of this kind, and gets one that says nothing"},
	{"google.golang.org/grpc", []string{"access", "api/plugin/v1", "api/v1", "backup/archive", "bench/runtime", "cluster", "cluster/backups", "cluster/membership", "cluster/partition", "cluster/router", "cluster/slotmover", "console", "host", "host/services", "host/session", "ingress", "internal/cli/mq", "internal/transport", "internal/verifier", "internal/wire/codec", "journal/etcd", "modules/transfer", "nameserver", "node", "operation", "node/certificates", "runtime/plugin", "sched", "sched/api", "sched/core", "sched/slotmove", "sdk", "sdk/plugin", "sdk/sdktest", "sdk/worker"}, "only rooms that talk to other processes use gRPC: the rest is tested without a network"},
	{"github.com/google/pprof", []string{"bench"}, "it reads what the profiler of a server has seen"},
	{"github.com/extism/go-sdk", []string{"bench/runtime"}, "it is there to be compared with"},
	{"github.com/grpc-ecosystem/grpc-gateway/v2", []string{"api/v1", "console"}, "only the console serves HTTP/JSON"},
	{"google.golang.org/protobuf", []string{"access", "access/audit", "alert/definition", "api/plugin/v1", "api/v1", "backup/archive", "bench/runtime", "cluster", "cluster/membership", "cluster/router", "cluster/slotmover", "console", "document", "environment", "event", "host", "importer", "ingress", "internal/cli/definition", "internal/cli/delivery", "internal/cli/module", "internal/cli/mq", "internal/cli/output", "internal/conditions", "internal/methods", "internal/transport", "internal/wire", "internal/wire/codec", "job", "nameserver", "node", "operation", "sched", "sched/api", "sched/core", "sched/hosts", "sched/projection", "sdk", "sdk/plugin", "sdk/sdktest", "sdk/worker", "tools"}, "logs, stores and engines carry bytes: only rooms that know jobs decode them"},
	{"google.golang.org/genproto", []string{"api/v1", "console", "tools"}, "it is part of the .proto files, which say what HTTP/JSON serves"},
	{"github.com/bufbuild/protocompile", []string{"tools"}, "generated code is committed: nothing compiles .proto files when the program runs"},
	{"go.opentelemetry.io/otel", []string{"alert/sender", "cluster/partition", "host", "host/services", "host/session", "node", "sched", "sched/api", "sched/core", "sdk", "sdk/worker"}, "metrics are recorded where runs are scheduled and executed, and traces pass through where a call or a task does"},
	{"go.opentelemetry.io/otel/sdk", []string{"node"}, "a process sets up telemetry once: rooms use the API, which does nothing until then"},
	{"go.opentelemetry.io/otel/exporters", []string{"node"}, "a process sets up telemetry once: rooms use the API, which does nothing until then"},
	{"go.opentelemetry.io/contrib", []string{"node"}, "a process sets up telemetry once: rooms use the API, which does nothing until then"},
	{"github.com/prometheus/client_golang", []string{"node"}, "metrics are made with the OpenTelemetry API and shown by the process"},
	{"github.com/spf13/cobra", []string{"internal/cli", "internal/cli/access", "internal/cli/alert", "internal/cli/app", "internal/cli/backup", "internal/cli/bridge", "internal/cli/bulk", "internal/cli/cluster", "internal/cli/command", "internal/cli/config", "internal/cli/connect", "internal/cli/cron", "internal/cli/definition", "internal/cli/describe", "internal/cli/event", "internal/cli/failure", "internal/cli/job", "internal/cli/migrate", "internal/cli/module", "internal/cli/mq", "internal/cli/operation", "internal/cli/output", "internal/cli/process", "internal/cli/run", "internal/cli/serve", "internal/cli/setup", "internal/cli/store"}, "flags and exit codes are the commands' alone"},
	{"github.com/spf13/pflag", []string{"internal/cli/command", "internal/cli/config"}, "one package sets flags from other sources than the command line"},
	{"github.com/schollz/progressbar", []string{"internal/cli/output"}, "only commands have a terminal"},
	{"golang.org/x/term", []string{"internal/cli/command", "internal/cli/output"}, "only commands have a terminal"},
	{"go.yaml.in/yaml", []string{"console", "document", "environment", "importer", "internal/cli/config", "internal/cli/contexts", "internal/cli/cron", "internal/cli/module", "internal/cli/output", "internal/cli/serve", "sdk"}, "YAML is for people: between processes and on disk there is protobuf"},
	{"golang.org/x/sys", []string{"bench", "mq", "mq/queue", "runtime/process", "runtime/sandbox", "runtime/wasm/internal/files", "runtime/wasm/internal/memory", "sched/wheel/alarm", "store"}, "what depends on the operating system stays where files and guest memory are owned"},
	{"golang.org/x/sync", []string{"bench", "console", "host", "node", "operation", "runtime/wasm", "sched", "sched/api", "tools/screenshots"}, "groups of goroutines belong to rooms that serve: nouns, queues and guests have none"},
	{"github.com/coreos/go-systemd/v22/daemon", []string{"internal/cli/serve"}, "the commands that run processes speak with what supervises these"},
	{"golang.org/x/net/netutil", []string{"node"}, "connections are bounded where a process listens"},
	{"github.com/chromedp", []string{"tools/screenshots"}, "browsers are for tests and for pictures"},
	{"golang.org/x/tools/go/packages", []string{"tools"}, "only developers read sources"},

	{"net", []string{"access/oidc", "alert/channel", "alert/definition", "api/v1", "bench", "bridge/xxljob", "console", "host", "host/services", "internal/cli", "internal/cli/bridge", "internal/cli/delivery", "internal/interpreter", "internal/memconn", "internal/outbound", "internal/testkit", "internal/transport", "modules/oci", "nameserver", "node", "node/certificates", "node/local", "runtime/plugin", "sched", "sdk", "sdk/plugin", "sdk/sdktest", "sdk/worker"}, "rooms with the rules, the data or the guests must not reach the network"},
	{"net/url", everything, "it only parses"},
	{"net/netip", everything, "it only parses"},
	{"os", []string{"alert/command", "backup/archive", "backup/planned", "bench", "bench/runtime", "bench/runtime/guests", "bridge/xxljob", "cluster/partition", "cmd/wheelwork", "document", "examples", "host/session", "internal/cli", "internal/cli/access", "internal/cli/app", "internal/cli/backup", "internal/cli/bridge", "internal/cli/cluster", "internal/cli/command", "internal/cli/config", "internal/cli/connect", "internal/cli/contexts", "internal/cli/definition", "internal/cli/delivery", "internal/cli/event", "internal/cli/job", "internal/cli/migrate", "internal/cli/module", "internal/cli/mq", "internal/cli/output", "internal/cli/serve", "internal/cli/store", "internal/credential", "internal/datadir", "internal/interpreter", "internal/testkit", "internal/toolchain", "internal/transport", "internal/verifier", "journal/etcd", "journal/local", "modules", "modules/oci", "mq", "mq/queue", "node", "node/certificates", "node/local", "node/offline", "runtime/builtin", "runtime/plugin", "runtime/process", "runtime/wasm/internal/codecache", "runtime/wasm/internal/files", "sched/wheel/alarm", "sdk", "sdk/plugin", "sdk/worker", "store", "tools", "tools/screenshots"}, "files and the environment are read by their owners, which hand on their contents; a session reads the load of its machine in /proc"},
	{"os/exec", []string{"alert/command", "bench", "bench/runtime", "internal/cli/access", "internal/cli/definition", "internal/toolchain", "internal/verifier", "node/local", "runtime/builtin", "runtime/plugin", "runtime/process", "tools", "tools/screenshots"}, "a program that is started must end with its host, which runtime/process sees to: others prepare one and hand it over; internal/verifier starts the process that looks at uploads, which watches for its end itself; internal/cli/definition waits for the editor of a person; internal/cli/access opens a browser, which outlives the command"},
	{"os/signal", []string{"bench", "bench/runtime", "examples", "internal/cli", "internal/cli/serve", "tools/screenshots"}, "signals are for the process, which is the command's"},
	{"plugin", nil, "code that a process learns at run time is a guest"},
	{"unsafe", []string{"api/plugin/v1", "api/v1", "bench/runtime/guests", "internal/wire", "mq", "runtime/sandbox", "sdk/guest"}, "only mapped segments, the guest's boundary and calls of the kernel without a function of their own have bytes that Go does not own, and only a message that was read is both texts and bytes"},
	{"C", nil, "the program builds with Go alone, for every platform from one"},
}

// crossed names the rule that an import of path breaks in a file of the package in dir;
// "" when none.
func crossed(dir, path string) string {
	home := longest(rooms, dir, func(r room) string { return r.dir })
	if home == nil {
		return fmt.Sprintf("%s is in no row of rooms: add one that says what it may import and why", dir)
	}
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		return home.crossedBy(ours)
	}
	s := longest(supplies, path, func(s supply) string { return s.path })
	switch {
	case s == nil && isStandard(path), s != nil && allows(s.only, home.dir):
		return ""
	case s == nil:
		return path + " is in no row of supplies: a new dependency needs one that says which rooms may import it and why"
	case len(s.only) == 0:
		return fmt.Sprintf("no room may import %s, because %s", s.path, s.why)
	default:
		return fmt.Sprintf("only %s may import %s, because %s", strings.Join(s.only, ", "), s.path, s.why)
	}
}

func (r *room) crossedBy(ours string) string {
	other := longest(rooms, ours, func(r room) string { return r.dir })
	switch {
	case other != nil && other.dir != r.dir && slices.Contains(forTests, other.dir):
		return "only tests may import " + other.dir
	case other != nil && (other.dir == r.dir || allows(r.may, other.dir)):
		return ""
	case other == nil:
		return ours + " is in no row of rooms"
	case len(r.may) == 0:
		return fmt.Sprintf("%s imports no other room of ours, because %s", r.dir, r.why)
	default:
		return fmt.Sprintf("%s may import only %s, because %s", r.dir, strings.Join(r.may, ", "), r.why)
	}
}

func allows(list []string, name string) bool {
	return slices.Equal(list, everything) || slices.Contains(list, name)
}

// longest returns the row with the longest path that contains name, or nil.
func longest[T any](rows []T, name string, path func(T) string) *T {
	var best *T
	for i := range rows {
		if p := path(rows[i]); within(p, name) && (best == nil || len(p) > len(path(*best))) {
			best = &rows[i]
		}
	}
	return best
}

// within reports whether name is dir or below it.
func within(dir, name string) bool {
	rest, ok := strings.CutPrefix(name, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// isStandard reports whether path is in the standard library by the rule of the go
// command: its first element has no dot.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		for i, path := range s.imports() {
			if broken := crossed(s.room(), path); broken != "" {
				t.Errorf("%s: imports %s: %s", s.at(s.file.Imports[i]), path, broken)
			}
		}
	}
}

// TestRoomsExist fails for rows whose folder is gone. (A supply may name a room that does
// not exist yet.)
func TestRoomsExist(t *testing.T) {
	all := sources(t)
	for _, r := range rooms {
		if !slices.ContainsFunc(all, func(s source) bool { return within(r.dir, s.room()) }) {
			t.Errorf("rooms has a row for %s, which has no Go file: remove it", r.dir)
		}
		for _, may := range r.may {
			if may != "..." && !slices.ContainsFunc(rooms, func(r room) bool { return r.dir == may }) {
				t.Errorf("%s may import %s, which has no row of its own", r.dir, may)
			}
		}
	}
}

// TestCrossed checks that the table enforces the boundaries of the design.
func TestCrossed(t *testing.T) {
	ours := func(dir string) string { return module + "/" + dir }
	for _, tt := range []struct{ dir, path, want string }{
		{"sched", ours("job"), ""},
		{"sched", ours("host"), "servers and hosts meet in api/v1 alone"},
		{"sched", ours("runtime/wasm"), "servers and hosts meet in api/v1 alone"},
		{"host", ours("sched"), "servers and hosts meet in api/v1 alone"},
		{"host", ours("sched/wheel"), "servers and hosts meet in api/v1 alone"},
		{"host", ours("store"), "servers and hosts meet in api/v1 alone"},
		{"host", ours("runtime/wasm"), "servers and hosts meet in api/v1 alone"},
		{"job", ours("store"), "no storage and no network"},
		{"job", "net/http", "must not reach the network"},
		{"job", "net/url", ""},
		{"job", "os", "files and the environment"},
		{"job", "google.golang.org/grpc/codes", "only rooms that talk to other"},
		{"job", "google.golang.org/protobuf/proto", ""},
		{"mq", ours("job"), "does not know what a job is"},
		{"mq", ours("api/v1"), "does not know what a job is"},
		{"store", ours("store/segment"), ""},
		{"store/segment", "github.com/dgraph-io/badger/v4", ""},
		{"sched", "github.com/dgraph-io/badger/v4", "only bench, store may import"},
		{"node", "github.com/tetratelabs/wazero/api", "a guest is metered and limited in one place"},
		{"runtime/wasm", "github.com/tetratelabs/wazero/api", ""},
		{"runtime/wasm", "net", "must not reach the network"},
		{"journal/local", "go.etcd.io/etcd/client/v3", "only bench, journal/etcd may import"},
		{"console", ours("store"), "through the API only"},
		{"sdk", ours("job"), "no internals"},
		{"sdk", ours("sdk/guest"), "no internals"},
		{"sdk/guest", ours("api/v1"), "have to stay small"},
		{"sdk/guest", "golang.org/x/sync/errgroup", "groups of goroutines"},
		{"sched", "go.opentelemetry.io/otel/sdk/metric", "sets up telemetry once"},
		{"sched", "go.opentelemetry.io/otel/metric", ""},
		{"node", ours("sched"), ""},
		{"node", ours("internal/testkit"), "only tests may import"},
		{"cmd/wheelwork", ours("internal/memconn"), "only tests may import"},
		{"internal/cli/mq", ours("store"), ""},
		{"internal/cli/job", ours("internal/cli/run"), "do not import each other"},
		{"cmd/wheelwork", ours("store"), "it is the program"},
		{"sched", "plugin", "no room may import plugin"},
		{"sched", "example.com/new", "a new dependency"},
		{"schedule", "fmt", "in no row of rooms"},
		{"node", ours("schedule"), "in no row of rooms"},
	} {
		got := crossed(tt.dir, tt.path)
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s imports %s: got %q, want %q in it", tt.dir, tt.path, got, tt.want)
		}
	}
}
