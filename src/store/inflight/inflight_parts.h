/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Internal declarations of the inflight module. */

#include "store/parts.h"
#include "wayback/when.h"
#include <endian.h>

#define WB_INFLIGHT_MAGIC "WBFLIGHT"
/* After a power cut the clock is at most this far ahead. More than the time between two syncs of the daemon. */
#define WB_MARK_AHEAD (2 * WB_WHEN_SECOND)
/* A clock beyond this (the year 2116) does not come from a valid file. */
#define WB_CLOCK_MAX (INT64_C(1) << 62)

struct wb_inflight_head {
    char magic[8];
    uint32_t slots;
    uint32_t zero;
    uint64_t last;
    uint64_t boot;
    uint64_t mark;
    uint64_t changed;
    uint64_t stamped;
    uint64_t cut;
};

struct wb_inflight_slot {
    uint64_t sequence;
    uint64_t when;
    union {
        struct {
            uint32_t logs;
            uint32_t zero;
        };
        uint64_t changed; /* of a free slot */
    };
    uint32_t a_kind;
    uint32_t b_kind;
    uint64_t a_ino, a_birth;
    uint64_t b_ino, b_birth;
};

/* Since version 10: the span of recorded time that is still growing (spans.h). */
struct wb_inflight_tail {
    uint64_t begin, end;
    uint64_t synced; /* all records before this are on stable storage */
    uint64_t content; /* all content of SRC written before this is on stable storage; 0: not known */
    uint64_t lost_since, lost_until; /* deleted files may have lost content in this period (lost_content.h); until 0:
                                      * none has */
    uint64_t content_cut; /* the newest power cut that is included in these three */
    uint64_t zero;
};

struct wb_inflight_file {
    struct wb_inflight_head head;
    struct wb_inflight_slot slots[WB_INFLIGHT_SLOTS];
    struct wb_inflight_tail tail;
};

_Static_assert(sizeof(struct wb_inflight_head) == WB_INFLIGHT_HEAD, "head as on disk");
_Static_assert(sizeof(struct wb_inflight_slot) == WB_INFLIGHT_SLOT, "slot as on disk");
_Static_assert(sizeof(struct wb_inflight_file) == WB_INFLIGHT_SIZE, "file as on disk");

static inline int64_t wb_inflight_clock(uint64_t data)
{
    int64_t when = (int64_t)le64toh(data);

    return when > 0 && when < WB_CLOCK_MAX ? when : 0;
}

struct wb_inflight {
    int fd;
    void *mapping; /* of the file, or NULL */
    uint64_t *_Atomic mapped; /* the same, until a store into it has failed */
    _Atomic int64_t last;
    _Atomic int64_t changed; /* the `when` of the newest change */
    int64_t slot_changed[WB_INFLIGHT_SLOTS];
    _Atomic uint64_t busy; /* one bit a slot */
    _Atomic int64_t whens[WB_INFLIGHT_SLOTS]; /* of slots taken in this process; 0: not known yet, or free */
    _Atomic uint64_t set_aside;
    atomic_uint retries; /* threads between wb_inflight_retry_begin and _end */
    struct wb_inflight_aside asides[WB_INFLIGHT_SLOTS];
    _Atomic uint64_t sequence;
    bool unclean, lost_power;
    bool anew, is_open; /* until wb_inflight_mark_open the file is as the last writer left it, or new */
    int64_t stamped, cut; /* struct wb_log_mtimes */
    uint64_t left_busy; /* slots that recovery has not examined yet */
    unsigned left_count;
    struct wb_inflight_entry left[WB_INFLIGHT_SLOTS];
    pthread_mutex_t mark_lock;
    int64_t mark;
};

/* Identifies the running kernel and the mount through which the store is reached. */
uint64_t wb_boot_id(int dir_fd);
/*
 * Whether `boot` is the id of this run of the kernel, and the store's file system has been mounted ever since:
 * otherwise the page cache is lost, except for pages that were written before. (A copy of a disk in use is such a case,
 * too.) The mount is the one through which the store is reached now, or another one, such as a bind mount, as long as
 * it exists and is visible here.
 */
bool wb_boot_goes_on(int dir_fd, uint64_t boot);

/* ---- slots in a mapping (inflight.c) ------------------------------------------------------- */

struct wb_inflight_word {
    unsigned at; /* in words of the file */
    bool raises; /* stored only if it is larger than the present value */
    uint64_t data;
};

/* The words to store, in this order, to take a slot and to free it again; returns their number. */
#define WB_INFLIGHT_WORDS 9
unsigned wb_inflight_words_taken(int slot, const struct wb_inflight_slot *data,
                                 struct wb_inflight_word words[WB_INFLIGHT_WORDS]);
unsigned wb_inflight_words_free(int slot, int64_t last, int64_t changed,
                                struct wb_inflight_word words[WB_INFLIGHT_WORDS]);

void wb_inflight_store_word(uint64_t *file, const struct wb_inflight_word *word);
/* False: there is no mapping, or it failed; then the caller writes the slot. */
bool wb_inflight_store(struct wb_inflight *inflight, const struct wb_inflight_word *words, unsigned count);
