/* SPDX-License-Identifier: LGPL-2.1-or-later */
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
#include "store/inflight/inflight_parts.h"

#include <glib.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

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

void wb_inflight_unmap(struct wb_inflight *inflight)
{
    inflight->mapped = NULL;
    if (inflight->mapping)
        munmap(inflight->mapping, sizeof(struct wb_inflight_file));
    inflight->mapping = NULL;
}

void wb_inflight_leave(struct wb_store *store)
{
    if (store->inflight)
        wb_inflight_unmap(store->inflight);
}
