/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Saves. Most editors, `sed -i` and rsync do not write to a file: they make another, which takes its name. So a version
 * of a file, in the words of users, is an object here. It is found in the catalog of its directory, which records its
 * whole life. It gets the name in one of these ways, and is replaced by the next one in the same way:
 *
 *   renamed over the other:   NAME  `aside`: absent                                      it is made
 *                             NAME  `aside`: it, moved to `name`; `name`: another, kept  it takes the name
 *
 *   in the place of another   NAME  `name`: another, moved to `backup`; that: absent
 *   that was moved away       NAME  `name`: absent                                       it is made
 *   (vim):                    NAME  `backup`: the other, kept                            that is removed
 *
 * Between these there may be ATTR records of it.
 */

#include "store/store.h"
#include "store/log/log.h"
#include <glib.h>

struct wb_thin_save {
    struct wb_object object;
    const char *name;            /* lives as long as the list                             */
    int64_t born, took, lost;    /* `when`s: it takes the name, and the next one does so  */
    uint64_t born_at, took_at, lost_at; /* offsets of the records                         */
    bool in_place;               /* it was made in the place of one that was moved away   */
    bool moved;                  /* so was it, and removed there:                         */
    int64_t removed;
    uint64_t removed_at;
    struct wb_attrs removed_attrs; /* as it was then                                      */
    guint attr_records;            /* number of ATTR records about it                       */
    guint named;                 /* and so many slots do                                  */
    struct wb_object before;     /* the file that had the name before, and how it was when it lost it */
    struct wb_attrs before_attrs;
    int64_t before_removed;      /* in_place: when it was removed elsewhere               */
    uint64_t before_removed_at;
    struct wb_attrs before_removed_attrs;
    bool goes;                   /* for thin_replaced.c: it is to be removed              */
};

/* An ATTR of a file of the directory. */
struct wb_thin_attr {
    struct wb_object object;
    uint64_t offset;
};

struct wb_thin_saves {
    struct wb_object dir;
    GArray *list;  /* of struct wb_thin_save; of one name the newest first, and all of a name in a row */
    GArray *attrs; /* of struct wb_thin_attr, of saves only, by object */
    GStringChunk *strings;
};

void wb_thin_saves_init(struct wb_thin_saves *saves, struct wb_object dir);
void wb_thin_saves_deinit(struct wb_thin_saves *saves);

/* Finds all in a catalog, of which `fd` is the file. `stop` may be NULL. 0; -EBADMSG: it is damaged; -ECANCELED; or
 * -errno. */
int wb_thin_saves_find(struct wb_thin_saves *saves, int fd, bool (*stop)(void *data), void *data);

/* The first of the ATTR records of an object; there are save->attr_records of them. NULL: there are none. */
const struct wb_thin_attr *wb_thin_saves_attrs(const struct wb_thin_saves *saves, struct wb_object object);

/* Whether a record may be the end of a save. */
bool wb_thin_is_replacing(struct wb_object dir, const struct wb_record *record);
