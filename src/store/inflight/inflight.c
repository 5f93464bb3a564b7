/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clock, and the changes that are under way.
 *
 * A slot is written when its change begins and again when it ends: by stores into a mapping if the caller requested one
 * (inflight_map.c), otherwise by one pwrite each. Both survive SIGKILL.
 *
 * The clock over restarts. After SIGKILL the slots and the head are intact, so the largest `when` in them is the last
 * one given out (or less than a log's last_when, which raises the clock when that log is opened). After a power cut
 * they may be outdated. Therefore a sync makes a mark durable that lies two seconds ahead, and renews it only when the
 * clock has passed it, so most fsyncs need no write of this file. The mark is used after a reboot only: within one boot
 * it would set `when` into the future.
 *
 * The newest change: a `when` is also given out for records that change nothing (a snapshot, an actor), so the last one
 * does not say when the newest change was. A slot therefore keeps the `when` of its change when it becomes free, and
 * the newest change is the largest of these and of the one in the head.
 */
#include "store/inflight/inflight_parts.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <time.h>

static int compare_entries(const void *a, const void *b)
{
    const struct wb_inflight_entry *x = a, *y = b;

    return (x->when > y->when) - (x->when < y->when);
}

static void take_over(struct wb_inflight *inflight, const struct wb_inflight_file *file, int dir_fd)
{
    int64_t last = wb_inflight_clock(file->head.last), mark = wb_inflight_clock(file->head.mark);
    int64_t changed = wb_inflight_clock(file->head.changed);

    /* A mark that was not withdrawn: the boot ended before the store was closed. */
    inflight->unclean = mark > last;
    inflight->lost_power = inflight->unclean && !wb_boot_goes_on(dir_fd, le64toh(file->head.boot));
    if (inflight->lost_power)
        changed = last = mark;
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++) {
        const struct wb_inflight_slot *slot = &file->slots[i];
        uint32_t a_kind = le32toh(slot->a_kind), b_kind = le32toh(slot->b_kind);

        last = MAX(last, wb_inflight_clock(slot->when));
        if (slot->sequence == 0) {
            changed = MAX(changed, wb_inflight_clock(slot->changed));
            continue;
        }
        changed = MAX(changed, wb_inflight_clock(slot->when));
        inflight->slot_changed[i] = wb_inflight_clock(slot->when);
        inflight->sequence = MAX(inflight->sequence, le64toh(slot->sequence));
        inflight->left_busy |= UINT64_C(1) << i;
        if (a_kind > WB_FILE_CATALOG || b_kind > WB_FILE_CATALOG)
            continue;
        inflight->left[inflight->left_count++] = (struct wb_inflight_entry){
            .when = (int64_t)le64toh(slot->when),
            .logs = le32toh(slot->logs),
            .a = {le64toh(slot->a_ino), (int64_t)le64toh(slot->a_birth)},
            .b = {le64toh(slot->b_ino), (int64_t)le64toh(slot->b_birth)},
            .a_kind = (enum wb_object_file)a_kind,
            .b_kind = (enum wb_object_file)b_kind,
        };
    }
    qsort(inflight->left, inflight->left_count, sizeof(inflight->left[0]), compare_entries);
    inflight->busy = inflight->left_busy;
    inflight->stamped = wb_inflight_clock(file->head.stamped);
    inflight->cut = wb_inflight_clock(file->head.cut);
    /* All losses are older than now, and all new records are newer. */
    if (inflight->lost_power || inflight->stamped == 0)
        last = MAX(last, wb_when_now());
    if (inflight->lost_power)
        inflight->cut = ++last;
    if (inflight->stamped == 0)
        inflight->stamped = ++last;
    inflight->last = last;
    inflight->changed = changed;
}

/* Writes the whole file at once, so that later writes need no new space. */
static int start_anew(int fd, struct wb_inflight_file *file)
{
    wb_ask_for_no_cow(fd);
    memset(file, 0, sizeof(*file));
    memcpy(file->head.magic, WB_INFLIGHT_MAGIC, sizeof(file->head.magic));
    file->head.slots = htole32(WB_INFLIGHT_SLOTS);
    /* The former state is lost: there may have been changes until now. */
    file->head.changed = htole64((uint64_t)wb_when_now());
    return wb_pwrite_full(fd, file, sizeof(*file), 0);
}

int wb_inflight_open(struct wb_inflight **ret, int dir_fd)
{
    _cleanup_close_ int fd = -1;
    g_autofree struct wb_inflight *inflight = g_try_new0(struct wb_inflight, 1);
    uint64_t boot = wb_boot_id(dir_fd);
    struct wb_inflight_file file = {0};
    size_t length;
    bool anew;
    int r;

    if (!inflight)
        return -ENOMEM;
    fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return fd;
    r = wb_pread_full(fd, &file, sizeof(file), 0, &length);
    /* An invalid file gives no information: the logs raise the clock. */
    anew = r == 0 && !wb_inflight_is_ours(&file, length);
    if (anew)
        r = start_anew(fd, &file);
    else if (r == 0 && length < sizeof(file))
        r = wb_pwrite_full(fd, &file.tail, sizeof(file.tail), offsetof(struct wb_inflight_file, tail));
    if (r < 0)
        return r;
    take_over(inflight, &file, dir_fd);
    r = wb_inflight_write_head(inflight, fd, boot, &file.head);
    if (r == 0 && anew)
        r = wb_fsync_dir(dir_fd);
    if (r < 0)
        return r;
    pthread_mutex_init(&inflight->mark_lock, NULL);
    inflight->fd = wb_steal_fd(&fd);
    *ret = g_steal_pointer(&inflight);
    return 0;
}

/* Writes last and mark; with `ahead` == 0 the mark is withdrawn to the last `when` given out. */
static int write_mark(struct wb_inflight *inflight, int64_t last, int64_t ahead)
{
    uint64_t data[2];
    int r;

    data[0] = htole64((uint64_t)last);
    r = wb_pwrite_full(inflight->fd, &data[0], sizeof(data[0]), offsetof(struct wb_inflight_head, last));
    if (r < 0)
        return r;
    data[0] = htole64((uint64_t)(last + ahead));
    data[1] = htole64((uint64_t)inflight->changed);
    /* If slots are mapped, the head gets the newest change when a change begins, and must not be set back. */
    r = wb_pwrite_full(inflight->fd, data, inflight->mapped ? sizeof(data[0]) : sizeof(data),
                       offsetof(struct wb_inflight_head, mark));
    if (r < 0)
        return r;
    if (fdatasync(inflight->fd) < 0)
        return -errno;
    inflight->mark = last + ahead;
    return 0;
}

struct wb_inflight *wb_inflight_free(struct wb_inflight *inflight)
{
    if (!inflight)
        return NULL;
    wb_inflight_unmap(inflight);
    write_mark(inflight, inflight->last, 0);
    close(inflight->fd);
    pthread_mutex_destroy(&inflight->mark_lock);
    g_free(inflight);
    return NULL;
}

int wb_inflight_sync(struct wb_inflight *inflight)
{
    int64_t last = inflight->last;
    int r = 0;

    pthread_mutex_lock(&inflight->mark_lock);
    if (last > inflight->mark)
        r = write_mark(inflight, last, WB_MARK_PRECLONE);
    pthread_mutex_unlock(&inflight->mark_lock);
    return r;
}

int wb_inflight_commit(struct wb_inflight *inflight)
{
    /* The file system commits its journal up to the newest change of the file that is synced: so make such a change. */
    return futimens(inflight->fd, NULL) < 0 || fsync(inflight->fd) < 0 ? -errno : 0;
}

static void raise_to(_Atomic int64_t *clock, int64_t when)
{
    int64_t last = *clock;

    while (last < when && !atomic_compare_exchange_weak(clock, &last, when))
        ;
}

void wb_inflight_raise(struct wb_inflight *inflight, int64_t when)
{
    /* A log that ends later is invalid and is not appended to (wb_log_append_locked); the clock ignores it. */
    if (when < WB_CLOCK_MAX)
        raise_to(&inflight->last, when);
}

int64_t wb_store_last_change(const struct wb_store *store)
{
    return store->inflight ? store->inflight->changed : WB_WHEN_PRESENT;
}

/* Reads as much as the writer has written. */
static bool look(const struct wb_store *store, struct wb_inflight_file *ret)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    size_t length = 0;

    *ret = (struct wb_inflight_file){0};
    return fd >= 0 && wb_pread_full(fd, ret, sizeof(*ret), 0, &length) == 0 && wb_inflight_is_ours(ret, length);
}

int64_t wb_store_look_for_change(const struct wb_store *store)
{
    struct wb_inflight_file file;
    int64_t changed;

    if (!look(store, &file))
        return WB_WHEN_PRESENT;
    changed = wb_inflight_clock(file.head.changed);
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++)
        changed = MAX(changed, wb_inflight_clock(file.slots[i].sequence ? file.slots[i].when : file.slots[i].changed));
    return changed;
}

/* The last `when` given out. */
static int64_t peek(const struct wb_store *store)
{
    struct wb_inflight_file file;
    int64_t last;

    if (!look(store, &file))
        return 0;
    last = wb_inflight_clock(file.head.last);
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++)
        last = MAX(last, wb_inflight_clock(file.slots[i].when));
    return last;
}

int64_t wb_store_now(const struct wb_store *store)
{
    int64_t now = wb_when_now(), last = store->inflight ? store->inflight->last : peek(store);

    return MAX(now, last);
}

int64_t wb_store_tick(struct wb_store *store)
{
    int64_t now = wb_when_now(), last, next;

    if (!store->inflight)
        return now;
    last = store->inflight->last;
    do
        next = MAX(now, last + 1);
    while (!atomic_compare_exchange_weak(&store->inflight->last, &last, next));
    return next;
}

/* A free slot, marked as taken; -EBUSY if none becomes free within ten seconds. */
static int claim(struct wb_inflight *inflight)
{
    static const struct timespec pause = {.tv_nsec = 100 * 1000};
    const uint64_t all = (UINT64_C(1) << WB_INFLIGHT_SLOTS) - 1;
    uint64_t busy;
    int slot;

    for (unsigned tries = 0; tries < 100 * 1000; tries++) {
        busy = inflight->busy;
        while ((busy & all) != all) {
            slot = __builtin_ctzll(~busy);
            if (atomic_compare_exchange_weak(&inflight->busy, &busy, busy | UINT64_C(1) << slot))
                return slot;
        }
        nanosleep(&pause, NULL);
    }
    return -EBUSY;
}

static uint64_t slot_offset(int slot)
{
    return WB_INFLIGHT_HEAD + (uint64_t)slot * WB_INFLIGHT_SLOT;
}

static void set_free(struct wb_inflight *inflight, int slot)
{
    inflight->whens[slot] = 0;
    atomic_fetch_and(&inflight->busy, ~(UINT64_C(1) << slot));
}

int wb_inflight_claim(struct wb_store *store, int64_t *ret_when)
{
    int slot = claim(store->inflight);

    if (slot >= 0)
        store->inflight->whens[slot] = *ret_when = wb_store_tick(store);
    return slot;
}

int wb_inflight_announce(struct wb_store *store, int slot, int64_t when, struct wb_object a,
                         enum wb_object_file a_kind, struct wb_object b, enum wb_object_file b_kind, int logs)
{
    struct wb_inflight *inflight = store->inflight;
    struct wb_inflight_slot data = {
        .sequence = htole64(++inflight->sequence),
        .when = htole64((uint64_t)when),
        .logs = htole32((uint32_t)logs),
        .a_kind = htole32(a_kind),
        .b_kind = htole32(b_kind),
        .a_ino = htole64(a.ino),
        .a_birth = htole64((uint64_t)a.birth),
        .b_ino = htole64(b.ino),
        .b_birth = htole64((uint64_t)b.birth),
    };
    struct wb_inflight_word words[WB_INFLIGHT_WORDS];
    int r = 0;

    if (!wb_inflight_store(inflight, words, wb_inflight_words_taken(slot, &data, words)))
        r = wb_pwrite_full(inflight->fd, &data, sizeof(data), slot_offset(slot));
    if (r < 0) {
        set_free(inflight, slot);
        return r;
    }
    inflight->slot_changed[slot] = when;
    raise_to(&inflight->changed, when);
    return slot;
}

int wb_inflight_begin(struct wb_store *store, int64_t when, struct wb_object a, enum wb_object_file a_kind,
                      struct wb_object b, enum wb_object_file b_kind, int logs)
{
    int slot = claim(store->inflight);

    if (slot < 0)
        return slot;
    store->inflight->whens[slot] = when;
    return wb_inflight_announce(store, slot, when, a, a_kind, b, b_kind, logs);
}

static int write_free(struct wb_inflight *inflight, int slot)
{
    int64_t last = inflight->last, changed = inflight->slot_changed[slot];
    uint64_t data[3] = {0, htole64((uint64_t)last), htole64((uint64_t)changed)};
    struct wb_inflight_word words[WB_INFLIGHT_WORDS];

    if (wb_inflight_store(inflight, words, wb_inflight_words_free(slot, last, changed, words)))
        return 0;
    return wb_pwrite_full(inflight->fd, data, sizeof(data), slot_offset(slot));
}

void wb_inflight_end(struct wb_store *store, int slot)
{
    if (slot < 0)
        return;
    /* If this write fails, recovery examines a change that has ended: harmless. */
    if (write_free(store->inflight, slot) < 0)
        errno = 0;
    set_free(store->inflight, slot);
}

int wb_inflight_each(struct wb_store *store, int (*callback)(const struct wb_inflight_entry *entry, void *data),
                     void *data)
{
    int r = 0;

    for (unsigned i = 0; i < store->inflight->left_count && r == 0; i++)
        r = callback(&store->inflight->left[i], data);
    return r;
}

int wb_inflight_clear(struct wb_store *store)
{
    struct wb_inflight *inflight = store->inflight;
    int r;

    for (int i = 0; i < WB_INFLIGHT_SLOTS; i++) {
        if (!(inflight->left_busy & UINT64_C(1) << i))
            continue;
        r = write_free(inflight, i);
        if (r < 0)
            return r;
        inflight->left_busy &= ~(UINT64_C(1) << i);
        set_free(inflight, i);
    }
    inflight->left_count = 0;
    return 0;
}
