/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clock, and the changes that are under way.
 *
 * A slot is written when its change begins and again when it ends: by stores into a mapping if the caller requested
 * one, otherwise by one pwrite each. Both survive SIGKILL.
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
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/magic.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* The head of `inflight`: the clock and its mark, and the fields that reveal power cuts. */

static bool inflight_is_ours(const struct wb_inflight_file *file, size_t length)
{
    return (length == sizeof(*file) || length == WB_INFLIGHT_SIZE_9) &&
           memcmp(file->head.magic, WB_INFLIGHT_MAGIC, sizeof(file->head.magic)) == 0 &&
           le32toh(file->head.slots) == WB_INFLIGHT_SLOTS;
}

/* Atomic and durable: a power cut from now on must be detected, and the last one must not be forgotten. */
static int inflight_write_head(struct wb_inflight *inflight, int fd, uint64_t boot, struct wb_inflight_head *head)
{
    int64_t last = inflight->last;
    int r;

    head->last = htole64((uint64_t)last);
    head->boot = htole64(boot);
    head->mark = htole64((uint64_t)(last + WB_MARK_AHEAD));
    head->changed = htole64((uint64_t)inflight->changed);
    head->stamped = htole64((uint64_t)inflight->stamped);
    head->cut = htole64((uint64_t)inflight->cut);
    r = wb_pwrite_full(fd, head, sizeof(*head), 0);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0)
        inflight->mark = last + WB_MARK_AHEAD;
    return r;
}

int wb_inflight_write_rested(const struct wb_inflight *inflight, int dir_fd)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDWR, 0);
    struct wb_inflight_head head;
    struct wb_inflight_tail tail;
    int r = fd < 0 ? fd : wb_pread_exact(fd, &head, sizeof(head), 0);

    if (r < 0)
        return r;
    head.last = head.mark = htole64((uint64_t)inflight->last);
    head.changed = htole64((uint64_t)inflight->changed);
    r = wb_pwrite_full(fd, &head, sizeof(head), 0);
    if (r == 0)
        r = wb_pread_exact(inflight->fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail));
    /* The copy was synced as a whole, so all of its content is on the disk. */
    if (r == 0)
        tail.synced = htole64((uint64_t)wb_ctime_clock());
    return r < 0 ? r : wb_pwrite_full(fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail));
}

void wb_inflight_log_mtimes(const struct wb_inflight *inflight, struct wb_log_mtimes *ret)
{
    *ret = (struct wb_log_mtimes){inflight->stamped, inflight->cut, inflight->unclean};
}

void wb_inflight_peek_log_mtimes(int dir_fd, bool held, struct wb_log_mtimes *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    struct wb_inflight_file file = {0};
    size_t length = 0;

    *ret = (struct wb_log_mtimes){0};
    if (fd < 0 || wb_pread_full(fd, &file, sizeof(file), 0, &length) < 0 || !inflight_is_ours(&file, length))
        return;
    *ret = (struct wb_log_mtimes){wb_inflight_clock(file.head.stamped), wb_inflight_clock(file.head.cut), false};
    /* No process has opened it for writing since. */
    if (!held && ret->since > 0 && wb_inflight_clock(file.head.mark) > wb_inflight_clock(file.head.last) &&
        !wb_boot_goes_on(dir_fd, le64toh(file.head.boot)))
        ret->cut = WB_CLOCK_MAX;
}

/* Queries about changes under way and about changes that failed. */

bool wb_inflight_is_under_way(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;
    uint64_t busy;

    if (!inflight)
        return false;
    busy = inflight->busy & ~inflight->left_busy & ~inflight->set_aside;
    for (; busy; busy &= busy - 1)
        if (inflight->whens[__builtin_ctzll(busy)] <= when)
            return true;
    return false;
}

/* Reads the clock first: a change that takes a slot after that has another `when`, which stayed_quiet detects. */
int64_t wb_inflight_quiet(struct wb_store *store)
{
    int64_t quiet = wb_store_tick(store);

    if (!store->inflight)
        return wb_store_is_held(store) ? 0 : quiet;
    return wb_inflight_is_under_way(store, INT64_MAX) ? 0 : quiet;
}

bool wb_inflight_stayed_quiet(const struct wb_store *store, int64_t quiet)
{
    if (quiet == 0)
        return false;
    return store->inflight ? store->inflight->last == quiet : !wb_store_is_held(store);
}

/*
 * The change of a slot that is free here has ended, or will take the slot later and read the clock after that, hence
 * after this call.
 */
int64_t wb_inflight_low_water(struct wb_store *store)
{
    struct wb_inflight *inflight = store->inflight;
    int64_t horizon = wb_store_tick(store), when;
    uint64_t busy = inflight->busy & ~inflight->set_aside;

    if (inflight->left_busy)
        return 0; /* recovery has not run yet */
    for (; busy; busy &= busy - 1) {
        int slot = __builtin_ctzll(busy);

        /* The thread has read or will read the clock but has not stored it yet: a matter of nanoseconds. */
        while ((when = inflight->whens[slot]) == 0 && inflight->busy & UINT64_C(1) << slot)
            sched_yield();
        if (when > 0)
            horizon = MIN(horizon, when);
    }
    return horizon;
}

bool wb_inflight_has(struct wb_store *store, int64_t when)
{
    for (int i = 0; i < WB_INFLIGHT_SLOTS; i++)
        if (store->inflight->busy & UINT64_C(1) << i && store->inflight->whens[i] == when)
            return true;
    return false;
}

bool wb_inflight_is_idle(const struct wb_inflight *inflight)
{
    return inflight->busy == 0;
}

bool wb_inflight_lost_power(struct wb_store *store)
{
    return store->inflight->lost_power;
}

void wb_inflight_set_aside(struct wb_store *store, int slot, const struct wb_inflight_aside *aside)
{
    store->inflight->asides[slot] = *aside;
    atomic_fetch_or(&store->inflight->set_aside, UINT64_C(1) << slot);
}

bool wb_inflight_has_aside(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;

    /* A thread that takes a change for another attempt keeps its slot until it is done. */
    for (uint64_t busy = inflight ? inflight->busy : 0; busy; busy &= busy - 1) {
        int64_t of = inflight->whens[__builtin_ctzll(busy)];

        if (of > 0 && of <= when)
            return true;
    }
    return false;
}

bool wb_inflight_has_failed(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;
    uint64_t failed = inflight ? inflight->set_aside : 0;

    /* A change that was taken is no longer marked, but keeps its slot. Read this after the marks: its thread counts
     * first. */
    if (inflight && inflight->retries > 0)
        failed |= inflight->busy;
    for (; failed; failed &= failed - 1) {
        int64_t of = inflight->whens[__builtin_ctzll(failed)];

        if (of > 0 && of <= when)
            return true;
    }
    return false;
}

bool wb_inflight_retry_begin(struct wb_store *store)
{
    if (!store->inflight || store->inflight->set_aside == 0)
        return false;
    store->inflight->retries++;
    return true;
}

void wb_inflight_retry_end(struct wb_store *store)
{
    store->inflight->retries--;
}

int wb_inflight_take_aside(struct wb_store *store, struct wb_inflight_aside *ret)
{
    struct wb_inflight *inflight = store->inflight;
    uint64_t waiting = inflight ? inflight->set_aside : 0;

    while (waiting) {
        int slot = __builtin_ctzll(waiting);
        uint64_t bit = UINT64_C(1) << slot;

        /* The thread that cleared the bit owns the change. */
        if (atomic_fetch_and(&inflight->set_aside, ~bit) & bit) {
            *ret = inflight->asides[slot];
            return slot;
        }
        waiting &= ~bit;
    }
    return -1;
}

/*
 * Slots of `inflight` as stores into a mapping of the file: bytes in the page cache survive SIGKILL however they got
 * there, and a store costs a hundredth of a pwrite.
 *
 * The process can end after any store. So each store is one word, and their order makes the slot read as free until all
 * of it is written, and as free again before any of it is cleared: the sequence is the last word to be set and the
 * first to be cleared. A free slot keeps the `when` of its former change in a word that has another meaning while the
 * slot is taken; in between no word would hold it, so it is stored in the head before.
 *
 * A pwrite can report that the disk is full or failing. A store raises SIGBUS if the page has to be allocated elsewhere
 * (btrfs, a shared or sparse file), if it was evicted and cannot be read again, or if the file was truncated by another
 * process. The handler jumps out of the store, and from then on all slots are written by pwrite.
 */

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* Numbers of words in a slot. */
enum { SEQUENCE, WHEN, LOGS_OR_CHANGED, KINDS, A_INO, A_BIRTH, B_INO, B_BIRTH, WORDS };

_Static_assert(WORDS * sizeof(uint64_t) == WB_INFLIGHT_SLOT, "a slot in words");
_Static_assert(offsetof(struct wb_inflight_slot, changed) == LOGS_OR_CHANGED * sizeof(uint64_t), "its words");
_Static_assert(offsetof(struct wb_inflight_slot, a_kind) == KINDS * sizeof(uint64_t), "its words");
_Static_assert(offsetof(struct wb_inflight_slot, b_birth) == B_BIRTH * sizeof(uint64_t), "its words");

/* ---- which words, in which order --------------------------------------------------------------- */

static struct wb_inflight_word of_slot(int slot, unsigned word, uint64_t data)
{
    return (struct wb_inflight_word){.at = WB_INFLIGHT_HEAD / 8 + (unsigned)slot * WORDS + word, .data = data};
}

unsigned wb_inflight_words_taken(int slot, const struct wb_inflight_slot *data,
                                 struct wb_inflight_word words[WB_INFLIGHT_WORDS])
{
    static const uint8_t order[] = {KINDS, A_INO, A_BIRTH, B_INO, B_BIRTH, WHEN, LOGS_OR_CHANGED, SEQUENCE};
    uint64_t all[WORDS];
    unsigned count = 0;

    memcpy(all, data, sizeof(all));
    for (unsigned i = 0; i < G_N_ELEMENTS(order); i++) {
        if (order[i] == LOGS_OR_CHANGED)
            words[count++] = (struct wb_inflight_word){
                .at = offsetof(struct wb_inflight_head, changed) / 8, .data = data->when, .raises = true};
        words[count++] = of_slot(slot, order[i], all[order[i]]);
    }
    return count;
}

unsigned wb_inflight_words_free(int slot, int64_t last, int64_t changed,
                                struct wb_inflight_word words[WB_INFLIGHT_WORDS])
{
    words[0] = of_slot(slot, SEQUENCE, 0);
    words[1] = of_slot(slot, WHEN, htole64((uint64_t)last));
    words[2] = of_slot(slot, LOGS_OR_CHANGED, htole64((uint64_t)changed));
    return 3;
}

/* ---- storing them -------------------------------------------------------------------------------- */

/* Where a thread continues if its store fails. */
struct escape {
    sigjmp_buf to;
    const char *page;
};

static _Thread_local struct escape *volatile escape;
static struct sigaction action_before;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    struct escape *out = escape;
    const char *at = info->si_addr;

    (void)context;
    if (out && info->si_code > 0 && at >= out->page && at < out->page + sizeof(struct wb_inflight_file))
        siglongjmp(out->to, 1);
    /* Not caused by this module: restore the previous action. The fault recurs as soon as this returns. */
    sigaction(SIGBUS, &action_before, NULL);
    if (info->si_code <= 0)
        raise(number);
}

static void catch_bus_errors(void)
{
    /* The signal is not deferred: a jump leaves the handler, and then the mask need not be saved. */
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};

    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &action_before);
}

void wb_inflight_store_word(uint64_t *file, const struct wb_inflight_word *word)
{
    uint64_t *to = file + word->at, there = __atomic_load_n(to, __ATOMIC_RELAXED);

    if (!word->raises) {
        __atomic_store_n(to, word->data, __ATOMIC_RELEASE);
        return;
    }
    while (le64toh(there) < le64toh(word->data) &&
           !__atomic_compare_exchange_n(to, &there, word->data, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

/* After the jump no variable is read that was set after sigsetjmp. */
static __attribute__((noinline)) bool store_all(uint64_t *file, const struct wb_inflight_word *words, unsigned count)
{
    struct escape out = {.page = (const char *)file};

    if (sigsetjmp(out.to, 0) != 0) {
        escape = NULL;
        return false;
    }
    escape = &out;
    atomic_signal_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < count; i++)
        wb_inflight_store_word(file, &words[i]);
    atomic_signal_fence(memory_order_seq_cst);
    escape = NULL;
    return true;
}

bool wb_inflight_store(struct wb_inflight *inflight, const struct wb_inflight_word *words, unsigned count)
{
    uint64_t *file = inflight->mapped;

    if (!file)
        return false;
    if (store_all(file, words, count))
        return true;
    /* The mapping itself remains until the end: other threads may be storing. */
    inflight->mapped = NULL;
    return false;
}

/* ---- the mapping ----------------------------------------------------------------------------------- */

/* Whether a mapping and pwrite see the same bytes at once, and both survive a kill. */
static bool is_local(int fd)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return false;
    switch ((uint32_t)fs.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        return true;
    default:
        return false;
    }
}

void wb_inflight_map(struct wb_store *store)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct wb_inflight *inflight = store->inflight;
    void *mapping;

    if (!inflight || inflight->mapping || !is_local(inflight->fd))
        return;
    mapping = mmap(NULL, sizeof(struct wb_inflight_file), PROT_READ | PROT_WRITE, MAP_SHARED, inflight->fd, 0);
    if (mapping == MAP_FAILED)
        return;
    pthread_once(&once, catch_bus_errors);
    inflight->mapping = mapping;
    inflight->mapped = mapping;
}

static void inflight_unmap(struct wb_inflight *inflight)
{
    inflight->mapped = NULL;
    if (inflight->mapping)
        munmap(inflight->mapping, sizeof(struct wb_inflight_file));
    inflight->mapping = NULL;
}

void wb_inflight_leave(struct wb_store *store)
{
    if (store->inflight)
        inflight_unmap(store->inflight);
}

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
    struct wb_inflight_file file = {0};
    size_t length;
    int r;

    if (!inflight)
        return -ENOMEM;
    fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return fd;
    r = wb_pread_full(fd, &file, sizeof(file), 0, &length);
    /* An invalid file gives no information: the logs raise the clock. */
    inflight->anew = r == 0 && !inflight_is_ours(&file, length);
    if (inflight->anew)
        r = start_anew(fd, &file);
    else if (r == 0 && length < sizeof(file))
        r = wb_pwrite_full(fd, &file.tail, sizeof(file.tail), offsetof(struct wb_inflight_file, tail));
    if (r < 0)
        return r;
    take_over(inflight, &file, dir_fd);
    pthread_mutex_init(&inflight->mark_lock, NULL);
    inflight->fd = wb_steal_fd(&fd);
    *ret = g_steal_pointer(&inflight);
    return 0;
}

int wb_inflight_mark_open(struct wb_inflight *inflight, int dir_fd)
{
    struct wb_inflight_head head;
    int r = wb_pread_exact(inflight->fd, &head, sizeof(head), 0);

    if (r == 0)
        r = inflight_write_head(inflight, inflight->fd, wb_boot_id(dir_fd), &head);
    if (r == 0 && inflight->anew)
        r = wb_fsync_dir(dir_fd);
    inflight->is_open = r == 0;
    return r;
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
    inflight_unmap(inflight);
    if (inflight->is_open)
        write_mark(inflight, inflight->last, 0);
    close(inflight->fd);
    pthread_mutex_destroy(&inflight->mark_lock);
    g_free(inflight);
    return NULL;
}

int wb_inflight_sync(struct wb_inflight *inflight)
{
    int64_t last = inflight->last, now = MAX(last, wb_when_now());
    int r = 0;

    pthread_mutex_lock(&inflight->mark_lock);
    /* No change before this is later than the mark, by its `when` and by its ctime, which is a little later. */
    if (now > inflight->mark)
        r = write_mark(inflight, last, now - last + WB_MARK_AHEAD);
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
    return fd >= 0 && wb_pread_full(fd, ret, sizeof(*ret), 0, &length) == 0 && inflight_is_ours(ret, length);
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
