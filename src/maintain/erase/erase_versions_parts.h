/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of erasing single versions share. */

#include "history/content/extent_map.h"
#include "maintain/erase/erase_set.h"
#include "maintain/erase/erase_versions.h"
#include "maintain/rewrite/rewrite.h"

/* A record of the log, in the order of a walk back. */
struct wb_erasing_entry {
    uint64_t offset;
    int64_t when;
    bool counts, told; /* not aborted; one of those that become two changes */
};

/* A record that is made, until it is known whether another of the same change follows. */
struct wb_erasing_made {
    struct wb_record record;
    char name[WB_NAME_MAX + 1], via[WB_NAME_MAX + 1];
    uint8_t *payload;
    bool pending;
};

struct wb_erasing {
    struct wb_store *store;
    const struct wb_erase_versions *what;
    struct wb_erasure *erasure;  /* for its actors                              */
    int fd, image_fd;
    GArray *entries;             /* of struct wb_erasing_entry, newest first               */
    GHashTable *last_ops;        /* of extended attributes: what came last      */
    GHashTable *names;           /* of those that an older change tells         */
    struct wb_extent_map map;    /* what older ones tell, and all past the end  */
    bool begun;                  /* attrs are known, and the map                */
    struct wb_attrs attrs;       /* before the first change                     */
    uint64_t size_after;         /* the last one                                */
    uint32_t actor;              /* who made it                                 */
    int64_t last;                /* `when` of what was made last                */
    struct wb_erasing_made made;
    uint8_t *payload;            /* of what is read                             */
    struct wb_rewrite rewrite;
    unsigned dropped;            /* states that go                              */
};

static inline const struct wb_attrs *wb_erasing_attrs(const struct wb_record *record)
{
    return record->type == WB_REC_DATA   ? &record->data.attrs
           : record->type == WB_REC_ATTR ? &record->attr.attrs
                                         : &record->xattr.attrs;
}

static inline bool wb_erasing_has(const struct wb_erasing *erasing, int64_t when)
{
    return when >= erasing->what->from && when <= erasing->what->until;
}

/* Reads all that may tell of the versions (erase_versions_look.c). 0, a refusal, or -errno. */
int wb_erasing_look(struct wb_erasing *erasing);

/* ---- what is left of them (erase_versions_make.c) ---------------------------------------------- */

/* Of the next record, oldest first, what no older one tells. Each of the two changes has a record at least. */
int wb_erasing_make(struct wb_erasing *erasing, const struct wb_record *record);
/* One that tells nothing but the attributes. */
int wb_erasing_make_attr(struct wb_erasing *erasing, const struct wb_record *from);
/* Writes what waits. `more`: another record of the same change follows. */
int wb_erasing_put(struct wb_erasing *erasing, bool more);
