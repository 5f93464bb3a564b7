/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The actor of each change. A process is written down once; records point to it by an index, which is its
 * record's offset / 8 + 1, so that reading an actor is one read.
 *
 * Looking at /proc for each change would cost more than the change, so a result is
 * assumed to be true for a moment. The cache has a fixed size: one process pushes out another.
 */
#include "store/parts.h"

#include "base/bounded.h"
#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log_scan.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CACHE_SIZE 4096
#define FRESH_MS 50

struct cached_actor {
    uint32_t uid, gid, pid;
    uint32_t index; /* 0: empty */
    uint64_t command_check;
    int64_t fresh_until; /* ms of CLOCK_MONOTONIC_COARSE */
};

struct wb_actors {
    struct wb_log *log;
    pthread_mutex_t lock; /* of the cache and of `commands` */
    enum wb_commands commands;
    struct cached_actor cache[CACHE_SIZE];
    struct {
        uint32_t index, uid; /* index 0: empty */
        int64_t when;
    } uids[CACHE_SIZE]; /* of indexes that were asked for */
};

int wb_actors_open(struct wb_store *store)
{
    struct wb_actors *actors = g_try_new0(struct wb_actors, 1);
    int r;

    if (!actors)
        return -ENOMEM;
    r = wb_log_open(&actors->log, store->dir_fd, WB_ACTORS_NAME, true);
    if (r < 0) {
        g_free(actors);
        return r;
    }
    pthread_mutex_init(&actors->lock, NULL);
    wb_inflight_raise(store->inflight, actors->log->last_when);
    store->actors = actors;
    return 0;
}

struct wb_actors *wb_actors_free(struct wb_actors *actors)
{
    if (!actors)
        return NULL;
    wb_log_free(actors->log);
    pthread_mutex_destroy(&actors->lock);
    g_free(actors);
    return NULL;
}

void wb_actors_go_on(struct wb_actors *actors, struct wb_actors *other)
{
    pthread_mutex_lock(&other->lock);
    memcpy(actors->cache, other->cache, sizeof(actors->cache));
    actors->commands = other->commands;
    pthread_mutex_unlock(&other->lock);
}

int wb_actors_sync(struct wb_store *store)
{
    return wb_log_sync(store->actors->log, store->dir_fd, WB_ACTORS_NAME);
}

void wb_store_actors_hold(struct wb_store *store)
{
    if (store->actors)
        pthread_mutex_lock(&store->actors->log->lock);
}

void wb_store_actors_release(struct wb_store *store)
{
    if (store->actors)
        pthread_mutex_unlock(&store->actors->log->lock);
}

int wb_store_actors_exchange(struct wb_store *store, const char *temporary)
{
    struct wb_actors *actors = store->actors;
    int r;

    if (!actors)
        return -EROFS;
    r = wb_log_exchange_locked(actors->log, store->dir_fd, WB_ACTORS_NAME, temporary, actors->log->tail);
    if (r < 0)
        return r;
    /* Processes that still run are written down anew, with their names. */
    pthread_mutex_lock(&actors->lock);
    memset(actors->cache, 0, sizeof(actors->cache));
    memset(actors->uids, 0, sizeof(actors->uids));
    pthread_mutex_unlock(&actors->lock);
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static size_t read_proc(uint32_t pid, const char *name, char *data, size_t size)
{
    _cleanup_close_ int fd = -1;
    char path[64];
    size_t length = 0;

    snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || wb_pread_full(fd, data, size, 0, &length) < 0)
        return 0;
    return length;
}

struct command_line {
    uint32_t pid;
    char data[WB_COMMAND_MAX];
    size_t length;
};

static void read_line(void *data)
{
    struct command_line *line = data;

    line->length = read_proc(line->pid, "cmdline", line->data, sizeof(line->data));
}

/* Arguments are in the memory of the process. Its length, 0 where the process has ended, or -errno. */
static ssize_t read_command_line(uint32_t uid, uint32_t pid, char data[WB_COMMAND_MAX])
{
    struct command_line *line = g_try_new(struct command_line, 1);
    ssize_t length;
    int r;

    if (!line)
        return -ENOMEM;
    line->pid = pid;
    r = wb_bounded_call(uid, read_line, g_free, line);
    if (r < 0)
        return r;
    length = (ssize_t)line->length;
    memcpy(data, line->data, line->length);
    g_free(line);
    return length;
}

/* "[name]", as the kernel knows the process, without blanks; its length. Empty where the process has ended. */
static size_t read_kernel_name(uint32_t pid, char *command, size_t size)
{
    char name[64];
    size_t length = read_proc(pid, "comm", name, sizeof(name));

    if (length > 0 && name[length - 1] == '\n')
        length--;
    if (length == 0)
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] <= ' ')
            name[i] = '_';
    return (size_t)snprintf(command, size, "[%.*s]", (int)length, name);
}

/*
 * Whether the end of the program's name is ambiguous once all arguments are joined by blanks. Without the kernel's name
 * before it, a part of a directory's name would pass for the name of the program.
 */
static bool is_ambiguous(const char *program, size_t length)
{
    bool blank = false, slash = false;

    for (size_t i = 0; i < length && program[i]; i++) {
        blank = blank || (unsigned char)program[i] <= ' ';
        slash = slash || program[i] == '/';
    }
    return blank && slash;
}

/*
 * The whole command line; its length. "[name]" where it has none. Empty where the process has ended, or where its line
 * cannot be read and it is `known` by an earlier one.
 */
static size_t read_command(uint32_t uid, uint32_t pid, bool known, char command[WB_COMMAND_MAX])
{
    char line[WB_COMMAND_MAX];
    size_t length, begin = 0;
    ssize_t n;

    /* The kernel itself: a mapping is written back, or a file is opened by no process. */
    if (pid == 0)
        return (size_t)g_strlcpy(command, "[kernel]", WB_COMMAND_MAX);
    n = read_command_line(uid, pid, line);
    if (n < 0 && known)
        return 0;
    length = n > 0 ? (size_t)n : 0;
    while (length > 0 && line[length - 1] == '\0')
        length--;
    if (length == 0)
        return read_kernel_name(pid, command, WB_COMMAND_MAX);
    if (is_ambiguous(line, length)) {
        begin = read_kernel_name(pid, command, WB_COMMAND_MAX - 1);
        command[begin++] = ' ';
    }
    length = MIN(length, WB_COMMAND_MAX - begin);
    for (size_t i = 0; i < length; i++)
        command[begin + i] = line[i] == '\0' ? ' ' : line[i];
    return begin + length;
}

/* Moves the base name of the program to the beginning; its length. "[name]" is one already. */
static size_t keep_name(char *command, size_t length)
{
    size_t begin = 0, end = 0;

    for (; end < length && (unsigned char)command[end] > ' '; end++)
        if (command[end] == '/' && command[0] != '[')
            begin = end + 1;
    memmove(command, command + begin, end - begin);
    return end - begin;
}

void wb_actor_hide_arguments(struct wb_actor *actor)
{
    actor->command[keep_name(actor->command, strlen(actor->command))] = '\0';
}

void wb_store_set_commands(struct wb_store *store, enum wb_commands commands)
{
    struct wb_actors *actors = store->actors;

    if (!actors)
        return;
    pthread_mutex_lock(&actors->lock);
    /* The index of a process that is cached stands for a command of the former length. */
    if (actors->commands != commands)
        memset(actors->cache, 0, sizeof(actors->cache));
    actors->commands = commands;
    pthread_mutex_unlock(&actors->lock);
}

/* Writes an actor down; its index, or 0. */
static uint32_t append_actor(struct wb_store *store, uint32_t uid, uint32_t gid, uint32_t pid,
                             const char *command, size_t length)
{
    struct wb_log *log = store->actors->log;
    struct wb_record record = {
        .type = WB_REC_ACTOR,
        .actor_info = {uid, gid, pid, (uint16_t)length, command},
    };
    int r = -EFBIG;

    pthread_mutex_lock(&log->lock);
    if (log->tail / 8 < UINT32_MAX - 1) {
        record.when = wb_store_tick(store);
        r = wb_log_append_locked(log, &record, NULL, 0);
    }
    pthread_mutex_unlock(&log->lock);
    return r < 0 ? 0 : (uint32_t)(record.offset / 8 + 1);
}

static struct cached_actor *cached_actor(struct wb_actors *actors, uint32_t uid, uint32_t gid, uint32_t pid)
{
    uint32_t key[3] = {uid, gid, pid};

    return &actors->cache[wb_checksum(key, sizeof(key)) % CACHE_SIZE];
}

void wb_store_actor_expire(struct wb_store *store, uint32_t uid, uint32_t gid, uint32_t pid)
{
    struct wb_actors *actors = store->actors;
    struct cached_actor *cached;

    if (!actors)
        return;
    cached = cached_actor(actors, uid, gid, pid);
    pthread_mutex_lock(&actors->lock);
    if (cached->uid == uid && cached->gid == gid && cached->pid == pid)
        cached->fresh_until = 0;
    pthread_mutex_unlock(&actors->lock);
}

uint32_t wb_store_actor(struct wb_store *store, uint32_t uid, uint32_t gid, uint32_t pid)
{
    struct wb_actors *actors = store->actors;
    struct cached_actor *cached, found;
    char command[WB_COMMAND_MAX];
    enum wb_commands commands;
    uint64_t check;
    size_t length;

    if (!actors)
        return 0;
    cached = cached_actor(actors, uid, gid, pid);
    pthread_mutex_lock(&actors->lock);
    found = *cached;
    commands = actors->commands;
    pthread_mutex_unlock(&actors->lock);
    if (found.index == 0 || found.uid != uid || found.gid != gid || found.pid != pid)
        found = (struct cached_actor){uid, gid, pid, 0, 0, 0};
    if (found.index > 0 && now_ms() < found.fresh_until)
        return found.index;

    length = commands == WB_COMMANDS_NONE ? 0 : read_command(uid, pid, found.index > 0, command);
    if (commands == WB_COMMANDS_NAME)
        length = keep_name(command, length);
    check = wb_checksum(command, length);
    /* A process that is gone by now is the one that was known, not a nameless one. */
    if (found.index == 0 || (length > 0 && check != found.command_check)) {
        found.index = append_actor(store, uid, gid, pid, command, length);
        found.command_check = check;
    }
    if (found.index == 0)
        return 0;
    found.fresh_until = now_ms() + FRESH_MS;
    pthread_mutex_lock(&actors->lock);
    if (commands == actors->commands)
        *cached = found;
    pthread_mutex_unlock(&actors->lock);
    return found.index;
}

/* The record at `index`; `data` (WB_SCAN_BUFFER) holds its strings. 0, WB_ABSENT or -errno. */
static int read_actor(const struct wb_store *store, uint32_t index, uint8_t *data, struct wb_record *ret)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (index == 0)
        return WB_ABSENT;
    fd = wb_open_own(store->dir_fd, WB_ACTORS_NAME, O_RDONLY, 0);
    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_log_probe(fd, (uint64_t)(index - 1) * 8, data, ret);
    return r == -EBADMSG || (r == 0 && ret->type != WB_REC_ACTOR) ? WB_ABSENT : r;
}

int wb_store_actor_info(const struct wb_store *store, uint32_t index, int64_t when, struct wb_actor *ret)
{
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;
    int r = read_actor(store, index, data, &record);

    if (r != 0)
        return r;
    /* One that was written down later than the change took the place of one that a power cut took. */
    if (record.when > when)
        return WB_ABSENT;
    ret->uid = record.actor_info.uid;
    ret->gid = record.actor_info.gid;
    ret->pid = record.actor_info.pid;
    memcpy(ret->command, record.actor_info.command, record.actor_info.command_length);
    ret->command[record.actor_info.command_length] = '\0';
    return 0;
}

int wb_store_actor_uid(struct wb_store *store, uint32_t index, int64_t when, uint32_t *ret)
{
    struct wb_actors *actors = store->actors;
    uint8_t data[WB_SCAN_BUFFER];
    unsigned at = index * 2654435761u % CACHE_SIZE;
    struct wb_record record;
    bool known;
    int r;

    if (index == 0 || !actors)
        return WB_ABSENT;
    pthread_mutex_lock(&actors->lock);
    known = actors->uids[at].index == index;
    if (known) {
        *ret = actors->uids[at].uid;
        record.when = actors->uids[at].when;
    }
    pthread_mutex_unlock(&actors->lock);
    if (known)
        return record.when > when ? WB_ABSENT : 0;
    r = read_actor(store, index, data, &record);
    if (r != 0)
        return r;
    *ret = record.actor_info.uid;
    pthread_mutex_lock(&actors->lock);
    actors->uids[at].index = index;
    actors->uids[at].uid = *ret;
    actors->uids[at].when = record.when;
    pthread_mutex_unlock(&actors->lock);
    return record.when > when ? WB_ABSENT : 0;
}
