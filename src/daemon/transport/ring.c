/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/transport/ring.h"

#include "base/cleanup.h"
#include "daemon/core/session.h"
#include "daemon/system/report.h"
#include "daemon/transport/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <liburing.h>
#include <poll.h>
#include <semaphore.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARAMETER "/sys/module/fuse/parameters/enable_uring"
#define PROCESSORS "/sys/devices/system/cpu/possible"
#define QUEUES_MAX 4096

/* Submissions that a ring holds; the dispatcher has more entries than that, and submits in between. */
#define SERVER_DEPTH 4
#define DISPATCHER_DEPTH 64

/* Servers of a queue beside the busy ones: each waits for the kernel with an entry, or for a reply to commit. */
#define IDLE_MAX 24

/*
 * Entries of a queue. A request that comes while none is available waits in the kernel until one is committed: a
 * command that registers a new one does not make the kernel send it (seen on Linux 6.18). And if all those in use wait
 * for look-backs, that takes long. So there are more than are needed, and more are registered before they run out.
 */
#define ENTRIES_MIN 16
#define ENTRIES 64          /* at first, on up to 32 CPUs */
#define ENTRIES_OF_ALL 2048
#define ENTRIES_MORE 32
#define AVAILABLE_MIN 16

/* Marks in completions what is no entry. */
#define EVENT UINT64_C(1)

enum reply {
    REPLY_NONE,     /* the operation has not returned yet */
    REPLY_DEFERRED, /* it has, and replies later, in another thread */
    REPLY_THERE,    /* another thread has written the reply */
};

enum job {
    JOB_SERVE, /* the entry has a request */
    JOB_SEND,  /* its next command is to be sent: it commits a reply, or registers a new entry */
};

struct entry {
    struct entry *next;     /* of all entries, which live as long as the rings */
    struct entry *next_job; /* in a list of jobs */
    enum job job;
    unsigned queue;
    unsigned command;       /* the last one: WB_WIRE_REGISTER, WB_WIRE_COMMIT_AND_FETCH */
    _Atomic uint64_t unique; /* of the request without a reply; 0: there is none */
    uint64_t commit_id;
    bool replied;           /* by the thread that serves it */
    _Atomic enum reply reply;
    struct wb_wire_ring_header *header;
    char *payload;          /* before which there is room for headers */
    struct iovec buffers[2];
};

struct jobs {
    struct entry *first, **last;
};

struct queue {
    struct wb_ring *ring;
    unsigned number;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct jobs jobs;
    unsigned job_count;
    atomic_uint waiting;   /* those for which no server was called */
    unsigned servers, resting, called; /* called: of those that rest, so many were woken and have not run yet */
    atomic_uint busy;      /* servers that serve a request */
    atomic_int available;  /* entries that wait for a request, in the rings of servers and of the dispatcher */
    atomic_bool wants_entries;
    int event;             /* eventfd: there are jobs for servers that wait for the kernel */
};

struct server {
    struct server *next;
    pthread_t thread;
    struct queue *queue;
    struct entry *first; /* the job for which it was started, or NULL */
    struct io_uring uring;
};

struct wb_ring {
    struct fuse_session *fuse;
    size_t payload;
    size_t entry_size;
    unsigned threads;
    struct queue *queues;
    unsigned queue_count;
    struct entry *_Atomic entries;
    pthread_mutex_t lock;      /* of servers, and of commits */
    struct server *servers;
    struct jobs commits;       /* entries whose next command the dispatcher sends */
    int event;                 /* wakes the dispatcher */
    pthread_t dispatcher;
    bool dispatches;
    sem_t start;               /* the dispatcher may register entries */
    struct io_uring uring;     /* of the dispatcher, and after its end of wb_ring_close */
    bool has_uring;
    atomic_bool stop;
    atomic_bool failed, reported_long;
};

/* What the calling thread serves. */
static _Thread_local struct entry *serving;

/* ---- lists --------------------------------------------------------------------------------------- */

static void jobs_init(struct jobs *jobs)
{
    jobs->first = NULL;
    jobs->last = &jobs->first;
}

static void jobs_add(struct jobs *jobs, struct entry *entry)
{
    entry->next_job = NULL;
    *jobs->last = entry;
    jobs->last = &entry->next_job;
}

static struct entry *jobs_take(struct jobs *jobs)
{
    struct entry *entry = jobs->first;

    if (entry)
        jobs->first = entry->next_job;
    if (!jobs->first)
        jobs->last = &jobs->first;
    return entry;
}

static void signal_event(int event)
{
    uint64_t one = 1;

    (void)!write(event, &one, sizeof(one));
}

static void clear_event(int event)
{
    uint64_t count;

    (void)!read(event, &count, sizeof(count));
}

/* ---- entries ------------------------------------------------------------------------------------- */

static struct entry *entry_new(struct wb_ring *ring, unsigned queue)
{
    size_t page = (size_t)getpagesize();
    struct entry *entry = g_try_new0(struct entry, 1);
    char *memory;

    if (!entry)
        return NULL;
    memory = mmap(NULL, ring->entry_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        g_free(entry);
        return NULL;
    }
    /* Most requests touch two pages of it. */
    madvise(memory, ring->entry_size, MADV_NOHUGEPAGE);
    entry->queue = queue;
    entry->header = (void *)memory;
    entry->payload = memory + page;
    entry->buffers[0] = (struct iovec){entry->header, sizeof(*entry->header)};
    entry->buffers[1] = (struct iovec){entry->payload, ring->payload};
    entry->command = WB_WIRE_REGISTER;
    entry->next = atomic_load(&ring->entries);
    while (!atomic_compare_exchange_weak(&ring->entries, &entry->next, entry))
        ;
    return entry;
}

static void entries_free(struct wb_ring *ring)
{
    struct entry *entry = atomic_load(&ring->entries), *next;

    for (; entry; entry = next) {
        next = entry->next;
        munmap(entry->header, ring->entry_size);
        g_free(entry);
    }
}

/* ---- rings --------------------------------------------------------------------------------------- */

static int uring_init(struct io_uring *uring, unsigned depth, int device)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SQE128 | IORING_SETUP_SUBMIT_ALL};
    int r = io_uring_queue_init_params(depth, uring, &params);

    if (r < 0)
        return r;
    r = io_uring_register_files(uring, &device, 1);
    if (r < 0)
        io_uring_queue_exit(uring);
    return r;
}

static struct io_uring_sqe *next_sqe(struct io_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(uring);

    while (!sqe) {
        io_uring_submit(uring);
        sqe = io_uring_get_sqe(uring);
    }
    return sqe;
}

/* Prepares the entry's next command; sent by the next call that submits. */
static void prepare(struct io_uring *uring, struct entry *entry)
{
    struct io_uring_sqe *sqe = next_sqe(uring);
    struct wb_wire_command command = {.queue = (uint16_t)entry->queue};

    /* Twice as large as liburing knows it. */
    memset(sqe, 0, 2 * sizeof(*sqe));
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->flags = IOSQE_FIXED_FILE;
    sqe->cmd_op = entry->command;
    io_uring_sqe_set_data(sqe, entry);
    if (entry->command == WB_WIRE_REGISTER) {
        sqe->addr = (uint64_t)(uintptr_t)entry->buffers;
        sqe->len = G_N_ELEMENTS(entry->buffers);
    } else {
        command.commit_id = entry->commit_id;
    }
    memcpy(sqe->cmd, &command, sizeof(command));
}

static void prepare_poll(struct io_uring *uring, int event)
{
    struct io_uring_sqe *sqe = next_sqe(uring);

    io_uring_prep_poll_add(sqe, event, POLLIN);
    io_uring_sqe_set_data64(sqe, EVENT);
}

/* The connection cannot be used any more, and nobody is to wait for it. */
static void fail(struct wb_ring *ring, const char *action, int r)
{
    if (atomic_exchange(&ring->failed, true) || atomic_load(&ring->stop))
        return;
    wb_log_msg("FUSE over io_uring failed (%s: %s); the mount ends; mount with -o no_io_uring", action, g_strerror(-r));
    fuse_session_exit(ring->fuse);
}

enum completion {
    REQUEST, /* the entry has one */
    AGAIN,   /* its command was prepared again */
    GONE,    /* unmounted, or the end */
};

static enum completion complete(struct wb_ring *ring, struct io_uring *uring, struct entry *entry, int result)
{
    if (result == 0) {
        entry->commit_id = entry->header->commit_id;
        entry->command = WB_WIRE_COMMIT_AND_FETCH; /* the next one */
        return REQUEST;
    }
    if (result == -EAGAIN || result == -EINTR) {
        prepare(uring, entry);
        return AGAIN;
    }
    if (result != -ENOTCONN && result != -ECONNABORTED && result != -ECANCELED && result != -ENODEV)
        fail(ring, entry->command == WB_WIRE_REGISTER ? "register" : "commit", result);
    return GONE;
}

/* ---- replies ------------------------------------------------------------------------------------- */

static struct entry *find_entry(struct wb_ring *ring, uint64_t unique)
{
    struct entry *entry = atomic_load(&ring->entries);

    while (entry && atomic_load_explicit(&entry->unique, memory_order_acquire) != unique)
        entry = entry->next;
    return entry;
}

/* With queue->lock held, after a change of the numbers of servers. */
static void count_waiting(struct queue *queue)
{
    atomic_store(&queue->waiting, queue->job_count - MIN(queue->job_count, queue->called));
}

/* With queue->lock held: for a server. */
static void add_job(struct queue *queue, struct entry *entry, enum job job)
{
    entry->job = job;
    jobs_add(&queue->jobs, entry);
    queue->job_count++;
    count_waiting(queue);
}

/* With queue->lock held: the job is for a server that rests. False: none does. */
static bool call_server(struct queue *queue, struct entry *entry, enum job job)
{
    if (queue->resting == queue->called)
        return false;
    queue->called++;
    add_job(queue, entry, job);
    pthread_cond_signal(&queue->work);
    return true;
}

/* The dispatcher sends its next command. */
static void pass_to_dispatcher(struct wb_ring *ring, struct entry *entry)
{
    pthread_mutex_lock(&ring->lock);
    jobs_add(&ring->commits, entry);
    pthread_mutex_unlock(&ring->lock);
    signal_event(ring->event);
}

/* A reply is ready, and its server has gone on. */
static void hand_over(struct wb_ring *ring, struct entry *entry)
{
    struct queue *queue = &ring->queues[entry->queue];
    bool taken;

    pthread_mutex_lock(&queue->lock);
    taken = !atomic_load(&ring->stop) && call_server(queue, entry, JOB_SEND);
    pthread_mutex_unlock(&queue->lock);
    if (!taken)
        pass_to_dispatcher(ring, entry);
}

static void write_reply(struct wb_ring *ring, struct entry *entry, const struct iovec *parts, int count)
{
    struct wb_wire_out out = *(const struct wb_wire_out *)parts[0].iov_base;
    size_t size = 0;

    for (int i = 1; i < count; i++) {
        if (parts[i].iov_len > ring->payload - size) {
            if (!atomic_exchange(&ring->reported_long, true))
                wb_log_msg("a reply of more than %zu bytes does not fit into its buffer; the request failed; please "
                           "report this (the mount option no_io_uring avoids it)", ring->payload);
            out.error = -EIO;
            size = 0;
            break;
        }
        memcpy(entry->payload + size, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    out.len = (uint32_t)(sizeof(out) + size);
    entry->header->out = out;
    entry->header->payload_size = (uint32_t)size;
}

bool wb_ring_reply(struct wb_ring *ring, const struct iovec *parts, int count)
{
    const struct wb_wire_out *out = parts[0].iov_base;
    struct entry *entry = serving;
    bool own = entry && atomic_load_explicit(&entry->unique, memory_order_relaxed) == out->unique;

    if (!own)
        entry = find_entry(ring, out->unique);
    if (!entry)
        return false;
    write_reply(ring, entry, parts, count);
    atomic_store_explicit(&entry->unique, 0, memory_order_relaxed);
    if (own)
        entry->replied = true;
    else if (atomic_exchange(&entry->reply, REPLY_THERE) == REPLY_DEFERRED)
        hand_over(ring, entry);
    return true;
}

/* ---- servers ------------------------------------------------------------------------------------- */

/*
 * Passes the request to libfuse, in the form in which /dev/fuse has it: the headers are put directly before the
 * payload. True: the reply is there. False: the entry is no longer the caller's.
 */
static bool serve(struct wb_ring *ring, struct entry *entry)
{
    const struct wb_wire_ring_header *header = entry->header;
    struct wb_wire_in in = header->in;
    size_t payload = header->payload_size, operation = in.len - sizeof(in) - payload;
    enum reply none = REPLY_NONE;
    struct fuse_buf request = {.size = in.len};

    if (payload > ring->payload || operation > sizeof(header->operation)) {
        struct wb_wire_out out = {.unique = in.unique, .error = -EIO};
        struct iovec part = {&out, sizeof(out)};

        write_reply(ring, entry, &part, 1);
        return true;
    }
    request.mem = entry->payload - operation - sizeof(in);
    memcpy(request.mem, &in, sizeof(in));
    memcpy((char *)request.mem + sizeof(in), header->operation, operation);
    entry->replied = false;
    atomic_store_explicit(&entry->reply, REPLY_NONE, memory_order_relaxed);
    atomic_store_explicit(&entry->unique, in.unique, memory_order_release);
    serving = entry;
    fuse_session_process_buf(ring->fuse, &request);
    serving = NULL;
    return entry->replied || !atomic_compare_exchange_strong(&entry->reply, &none, REPLY_DEFERRED);
}

static struct entry *take_job(struct queue *queue)
{
    struct entry *entry;

    pthread_mutex_lock(&queue->lock);
    entry = jobs_take(&queue->jobs);
    queue->job_count -= entry != NULL;
    count_waiting(queue);
    pthread_mutex_unlock(&queue->lock);
    return entry;
}

/* Waits for one. NULL: the end. */
static struct entry *wait_for_job(struct queue *queue)
{
    struct entry *entry = NULL;

    pthread_mutex_lock(&queue->lock);
    while (!atomic_load(&queue->ring->stop) && !(entry = jobs_take(&queue->jobs))) {
        queue->resting++;
        pthread_cond_wait(&queue->work, &queue->lock);
        queue->resting--;
        if (queue->called > 0)
            queue->called--;
    }
    queue->job_count -= entry != NULL;
    count_waiting(queue);
    pthread_mutex_unlock(&queue->lock);
    return entry;
}

/* The dispatcher has more requests than servers: this one has an entry of its own, and serves one beside. */
static void help_out(struct queue *queue)
{
    struct entry *job;

    clear_event(queue->event);
    /* It was for all servers. */
    if (atomic_load(&queue->ring->stop))
        signal_event(queue->event);
    while (!atomic_load(&queue->ring->stop) && (job = take_job(queue)))
        if (job->job == JOB_SEND || serve(queue->ring, job))
            pass_to_dispatcher(queue->ring, job);
}

/* Waits in the server's ring, in which `entry` has been prepared. True: it has a request. False: the end. */
static bool await_request(struct server *server, struct entry *entry)
{
    struct queue *queue = server->queue;
    bool event = false, arrived = false, gone = false;

    atomic_fetch_add(&queue->available, 1);
    while (!arrived && !gone && !atomic_load(&queue->ring->stop)) {
        struct io_uring_cqe *cqe;
        unsigned head, count = 0;
        int r = io_uring_submit_and_wait(&server->uring, 1);

        if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY) {
            fail(queue->ring, "wait", r);
            break;
        }
        io_uring_for_each_cqe(&server->uring, head, cqe) {
            enum completion completion;

            count++;
            if (cqe->user_data == EVENT) {
                event = true;
                continue;
            }
            completion = complete(queue->ring, &server->uring, entry, cqe->res);
            arrived = completion == REQUEST;
            gone = completion == GONE;
        }
        io_uring_cq_advance(&server->uring, count);
        if (event && !arrived && !gone)
            help_out(queue);
        if (event)
            prepare_poll(&server->uring, queue->event);
        event = false;
    }
    /* At the end: the reply of a request that was carried out. */
    if (atomic_load(&queue->ring->stop))
        io_uring_submit(&server->uring);
    atomic_fetch_sub(&queue->available, 1);
    return arrived;
}

/*
 * On the CPU of the queue's callers, which wait meanwhile: to wake a thread on another CPU takes longer than most
 * requests. If this process may not use that CPU, or if it is offline, the thread is left to the scheduler.
 */
static void run_beside_callers(unsigned processor)
{
    cpu_set_t *set = CPU_ALLOC(processor + 1);
    size_t size = CPU_ALLOC_SIZE(processor + 1);

    if (!set)
        return;
    CPU_ZERO_S(size, set);
    CPU_SET_S(processor, size, set);
    (void)sched_setaffinity(0, size, set);
    CPU_FREE(set);
}

/* Few entries of the queue wait for requests: the dispatcher registers more. */
static void want_entries(struct queue *queue)
{
    if (!atomic_exchange(&queue->wants_entries, true))
        signal_event(queue->ring->event);
}

/* Serves the request of the entry. True: its reply is to be committed. False: the reply comes later. */
static bool serve_counted(struct queue *queue, struct entry *entry)
{
    bool replied;

    atomic_fetch_add(&queue->busy, 1);
    if (atomic_load(&queue->available) < AVAILABLE_MIN)
        want_entries(queue);
    replied = serve(queue->ring, entry);
    atomic_fetch_sub(&queue->busy, 1);
    return replied;
}

static void *run_server(void *data)
{
    struct server *server = data;
    struct queue *queue = server->queue;
    struct entry *entry = server->first;

    pthread_setname_np(pthread_self(), "fuse_ring");
    run_beside_callers(queue->number);
    prepare_poll(&server->uring, queue->event);
    while (entry || (entry = wait_for_job(queue))) {
        if (entry->job == JOB_SERVE && !serve_counted(queue, entry)) {
            entry = NULL;
            continue;
        }
        /* No server is free for a job: this one is. */
        if (atomic_load_explicit(&queue->waiting, memory_order_relaxed) > 0) {
            pass_to_dispatcher(queue->ring, entry);
            entry = NULL;
            continue;
        }
        prepare(&server->uring, entry);
        if (await_request(server, entry))
            entry->job = JOB_SERVE;
        else
            entry = NULL;
    }
    io_uring_queue_exit(&server->uring);
    return NULL;
}

/* With queue->lock held: for a job that is in no list. 0 or -errno. */
static int start_server(struct queue *queue, struct entry *first)
{
    struct wb_ring *ring = queue->ring;
    struct server *server = g_try_new0(struct server, 1);
    int r;

    if (!server)
        return -ENOMEM;
    server->queue = queue;
    server->first = first;
    r = uring_init(&server->uring, SERVER_DEPTH, fuse_session_fd(ring->fuse));
    if (r < 0) {
        g_free(server);
        return r;
    }
    r = pthread_create(&server->thread, NULL, run_server, server);
    if (r != 0) {
        io_uring_queue_exit(&server->uring);
        g_free(server);
        return -r;
    }
    queue->servers++;
    pthread_mutex_lock(&ring->lock);
    server->next = ring->servers;
    ring->servers = server;
    pthread_mutex_unlock(&ring->lock);
    return 0;
}

/* ---- the dispatcher ------------------------------------------------------------------------------ */

static void dispatch(struct wb_ring *ring, struct entry *entry)
{
    struct queue *queue = &ring->queues[entry->queue];
    int r = 0;

    entry->job = JOB_SERVE;
    pthread_mutex_lock(&queue->lock);
    if (!call_server(queue, entry, JOB_SERVE)) {
        r = -EBUSY;
        if (atomic_load(&queue->busy) < ring->threads && queue->servers < ring->threads + IDLE_MAX)
            r = start_server(queue, entry);
        /* For those that wait for the kernel, now or later; the others look for jobs themselves. */
        if (r < 0) {
            add_job(queue, entry, JOB_SERVE);
            signal_event(queue->event);
        }
        r = queue->servers == 0 ? r : 0;
    }
    pthread_mutex_unlock(&queue->lock);
    if (r < 0)
        fail(ring, "start of a thread", r);
}

static void send_command(struct wb_ring *ring, struct entry *entry)
{
    atomic_fetch_add(&ring->queues[entry->queue].available, 1);
    prepare(&ring->uring, entry);
}

static void add_entries(struct wb_ring *ring, struct queue *queue)
{
    for (int i = 0; i < ENTRIES_MORE; i++) {
        struct entry *entry = entry_new(ring, queue->number);

        if (!entry)
            break;
        send_command(ring, entry);
    }
}

static void send_commits(struct wb_ring *ring)
{
    struct entry *entry;

    do {
        pthread_mutex_lock(&ring->lock);
        entry = jobs_take(&ring->commits);
        pthread_mutex_unlock(&ring->lock);
        if (entry)
            send_command(ring, entry);
    } while (entry);
}

static void send_commands(struct wb_ring *ring)
{
    for (unsigned i = 0; i < ring->queue_count; i++)
        if (atomic_exchange(&ring->queues[i].wants_entries, false))
            add_entries(ring, &ring->queues[i]);
    send_commits(ring);
}

static void take_completion(struct wb_ring *ring, struct io_uring_cqe *cqe)
{
    struct entry *entry;

    if (cqe->user_data == EVENT) {
        clear_event(ring->event);
        send_commands(ring);
        prepare_poll(&ring->uring, ring->event);
        return;
    }
    entry = io_uring_cqe_get_data(cqe);
    switch (complete(ring, &ring->uring, entry, cqe->res)) {
    case REQUEST:
        atomic_fetch_sub(&ring->queues[entry->queue].available, 1);
        dispatch(ring, entry);
        break;
    case GONE:
        atomic_fetch_sub(&ring->queues[entry->queue].available, 1);
        break;
    case AGAIN:
        break;
    }
}

static void *run_dispatcher(void *data)
{
    struct wb_ring *ring = data;

    pthread_setname_np(pthread_self(), "fuse_dispatcher");
    while (sem_wait(&ring->start) < 0 && errno == EINTR)
        ;
    prepare_poll(&ring->uring, ring->event);
    for (struct entry *entry = atomic_load(&ring->entries); entry && !atomic_load(&ring->stop); entry = entry->next)
        send_command(ring, entry);
    while (!atomic_load(&ring->stop)) {
        struct io_uring_cqe *cqe;
        int r = io_uring_submit_and_wait(&ring->uring, 1);

        if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY) {
            fail(ring, "wait", r);
            break;
        }
        while (io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
            struct io_uring_cqe copy = *cqe;

            io_uring_cqe_seen(&ring->uring, cqe);
            take_completion(ring, &copy);
        }
    }
    return NULL;
}

/* ---- from the mount to its end ------------------------------------------------------------------- */

/* How many queues the kernel has: one for each CPU that there may ever be. 0: not known. */
static unsigned count_queues(void)
{
    g_autofree char *text = NULL;
    const char *last;
    guint64 number;

    /* "0-127", or "0" */
    if (!g_file_get_contents(PROCESSORS, &text, NULL, NULL))
        return 0;
    last = strpbrk(text, "-,") ? strrchr(text, strrchr(text, '-') > strrchr(text, ',') ? '-' : ',') + 1 : text;
    number = g_ascii_strtoull(last, NULL, 10);
    return strchr(text, ',') || number >= QUEUES_MAX ? 0 : (unsigned)number + 1;
}

int wb_ring_check(struct wb_error *why)
{
    g_autofree char *text = NULL;
    struct io_uring_params params = {.flags = IORING_SETUP_SQE128};
    struct io_uring uring;
    int r;

    if (!g_file_get_contents(PARAMETER, &text, NULL, NULL))
        return wb_error_set(why, -EOPNOTSUPP, "this kernel has no FUSE over io_uring (Linux 6.14 or later has)");
    if (text[0] != 'Y')
        return wb_error_set(why, -EOPNOTSUPP, "the kernel's FUSE over io_uring is switched off; as root: echo Y > "
                            PARAMETER);
    if (count_queues() == 0)
        return wb_error_set(why, -EOPNOTSUPP, "%s cannot be read, so the number of queues is not known", PROCESSORS);
    r = io_uring_queue_init_params(SERVER_DEPTH, &uring, &params);
    if (r < 0)
        return wb_error_set(why, r, "the kernel refuses a ring to this process (io_uring_setup: %s); sysctl "
                            "kernel.io_uring_disabled or the container may forbid it", g_strerror(-r));
    io_uring_queue_exit(&uring);
    return 0;
}

static void queue_init(struct wb_ring *ring, unsigned number)
{
    struct queue *queue = &ring->queues[number];

    *queue = (struct queue){.ring = ring, .number = number, .event = -1};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->work, NULL);
    jobs_init(&queue->jobs);
}

static int make_events(struct wb_ring *ring)
{
    ring->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ring->event < 0)
        return -errno;
    for (unsigned i = 0; i < ring->queue_count; i++) {
        ring->queues[i].event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (ring->queues[i].event < 0)
            return -errno;
    }
    return 0;
}

/* One for each CPU that is there, so that none of its requests needs a thread or a descriptor that is not to be had. */
static int start_servers(struct wb_ring *ring)
{
    long present = sysconf(_SC_NPROCESSORS_CONF);
    int r = 0;

    for (unsigned i = 0; i < ring->queue_count && i < present && r == 0; i++) {
        pthread_mutex_lock(&ring->queues[i].lock);
        r = start_server(&ring->queues[i], NULL);
        pthread_mutex_unlock(&ring->queues[i].lock);
    }
    return r;
}

int wb_ring_new(struct wb_ring **ret, struct fuse_session *fuse, size_t payload, unsigned threads)
{
    size_t page = (size_t)getpagesize();
    struct wb_ring *ring;
    unsigned count = count_queues();
    int r;

    *ret = NULL;
    ring = count > 0 ? g_try_new0(struct wb_ring, 1) : NULL;
    if (!ring)
        return count > 0 ? -ENOMEM : -EOPNOTSUPP;
    ring->fuse = fuse;
    ring->payload = payload;
    ring->entry_size = page + (payload + page - 1) / page * page;
    ring->threads = threads;
    ring->event = -1;
    sem_init(&ring->start, 0, 0);
    pthread_mutex_init(&ring->lock, NULL);
    jobs_init(&ring->commits);
    ring->queues = g_try_new(struct queue, count);
    ring->queue_count = ring->queues ? count : 0;
    for (unsigned i = 0; i < ring->queue_count; i++)
        queue_init(ring, i);
    r = ring->queues ? make_events(ring) : -ENOMEM;
    for (unsigned i = 0; r == 0 && i < count * MAX(ENTRIES_MIN, MIN(ENTRIES, ENTRIES_OF_ALL / count)); i++)
        r = entry_new(ring, i % count) ? 0 : -ENOMEM;
    if (r == 0)
        r = uring_init(&ring->uring, DISPATCHER_DEPTH, fuse_session_fd(fuse));
    ring->has_uring = r == 0;
    if (r == 0) {
        r = -pthread_create(&ring->dispatcher, NULL, run_dispatcher, ring);
        ring->dispatches = r == 0;
    }
    if (r == 0)
        r = start_servers(ring);
    if (r < 0) {
        wb_ring_free(ring);
        return r;
    }
    *ret = ring;
    return 0;
}

void wb_ring_start(struct wb_ring *ring)
{
    sem_post(&ring->start);
}

void wb_ring_stop(struct wb_ring *ring)
{
    struct server *server;

    atomic_store(&ring->stop, true);
    sem_post(&ring->start);
    signal_event(ring->event);
    for (unsigned i = 0; i < ring->queue_count; i++) {
        signal_event(ring->queues[i].event);
        pthread_mutex_lock(&ring->queues[i].lock);
        pthread_cond_broadcast(&ring->queues[i].work);
        pthread_mutex_unlock(&ring->queues[i].lock);
    }
    /* First the thread that starts others. */
    if (ring->dispatches)
        pthread_join(ring->dispatcher, NULL);
    ring->dispatches = false;
    while ((server = ring->servers)) {
        ring->servers = server->next;
        pthread_join(server->thread, NULL);
        g_free(server);
    }
}

void wb_ring_close(struct wb_ring *ring)
{
    struct entry *entry;

    if (!ring->has_uring)
        return;
    ring->has_uring = false;
    for (unsigned i = 0; i < ring->queue_count; i++)
        while ((entry = take_job(&ring->queues[i])))
            if (entry->job == JOB_SEND)
                pass_to_dispatcher(ring, entry);
    send_commits(ring);
    io_uring_submit(&ring->uring);
    io_uring_queue_exit(&ring->uring);
}

struct wb_ring *wb_ring_free(struct wb_ring *ring)
{
    if (!ring)
        return NULL;
    wb_ring_stop(ring);
    wb_ring_close(ring);
    entries_free(ring);
    for (unsigned i = 0; i < ring->queue_count; i++) {
        wb_close_fd(&ring->queues[i].event);
        pthread_mutex_destroy(&ring->queues[i].lock);
        pthread_cond_destroy(&ring->queues[i].work);
    }
    g_free(ring->queues);
    wb_close_fd(&ring->event);
    pthread_mutex_destroy(&ring->lock);
    sem_destroy(&ring->start);
    g_free(ring);
    return NULL;
}
