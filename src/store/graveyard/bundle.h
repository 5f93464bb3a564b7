/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The packed content of deleted and replaced files (docs/format.md, Bundles). The file itself remains in the graveyard,
 * emptied, because its inode identifies the object. `ID.bundle` is a name of the bundle that holds its content. While
 * that name exists, the bundle has the content, whatever the file contains.
 *
 * So two orders matter. The packer gives the bundle its names durably before it empties a file; the unpacker removes
 * the name after the file is complete and on the disk. A reader looks for the bundle first, and again whenever the file
 * is shorter than it should be: a file that is being emptied, or filled from its beginning, never has wrong bytes below
 * its size. No lock is needed, and an open bundle remains valid, because it never changes.
 */

#include "store/log/log_bytes.h"
#include "store/store.h"

struct wb_bundle {
    int fd;
    struct wb_log_bytes bytes;
    uint32_t count, extent_count;
    struct wb_bundle_member *members; /* in order of objects */
    struct wb_bundle_extent *extents;
};

/* Takes ownership of the descriptor. 0, -EBADMSG if the file is damaged or not a bundle, or -errno. */
int wb_bundle_open_fd(int fd, struct wb_bundle **ret);
/* `file`: WB_FILE_BUNDLE or WB_FILE_BUNDLE_OLD. 0; WB_ABSENT: there is none; or as above. */
int wb_bundle_open(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                   struct wb_bundle **ret);
struct wb_bundle *wb_bundle_free(struct wb_bundle *bundle);

/* NULL: not in it. */
const struct wb_bundle_member *wb_bundle_find(const struct wb_bundle *bundle, struct wb_object object);

/* Reads bytes below the member's size; holes are zeros. 0, -EBADMSG if a chunk that is needed is damaged, or -errno. */
int wb_bundle_read(const struct wb_bundle *bundle, const struct wb_bundle_member *member, void *data, size_t length,
                   uint64_t offset);

/* Whether there is a hole at `offset`, below the size, and where that hole or data ends. */
void wb_bundle_run(const struct wb_bundle *bundle, const struct wb_bundle_member *member, uint64_t offset,
                   bool *ret_hole, uint64_t *ret_end);

/* The file of that name: its inode number and links. 0, WB_ABSENT or -errno. */
int wb_bundle_stat(const struct wb_store *store, struct wb_object object, enum wb_object_file file, struct stat *st);

/* ---- a file, packed or not ------------------------------------------------------------------- */

struct wb_body {
    const struct wb_store *store;
    struct wb_object object;
    int fd; /* of the file itself; owned; -errno: reads return it */
    struct wb_bundle *bundle;
    const struct wb_bundle_member *member;
    bool summed, unsummed; /* whether it has checksums (body_sums.h); neither: not yet known */
    uint64_t verified;     /* the block that was compared last, plus 1 */
};

/* Takes ownership of the descriptor of the file. 0 or -errno; -EBADMSG: its content was packed, and is damaged. */
int wb_body_init(struct wb_body *body, const struct wb_store *store, struct wb_object object, int fd);
void wb_body_deinit(struct wb_body *body);

int wb_body_size(struct wb_body *body, uint64_t *ret);
/* As wb_pread_full, and -EBADMSG. */
int wb_body_pread(struct wb_body *body, void *data, size_t length, uint64_t offset, size_t *ret);
/* As wb_bundle_run: *ret_end is UINT64_MAX if it is not known. */
int wb_body_run(struct wb_body *body, uint64_t offset, bool *ret_hole, uint64_t *ret_end);

/* ---- unpacking (bundle_unpack.c) -------------------------------------------------------------- */

/*
 * Restores the content to the file, durably, and renames ID.bundle to ID.bundle-old: the bundle still has the content,
 * so an erasure has to know it. The caller owns `rewriting`. 0 also if nothing is packed; after an error the content is
 * packed as before.
 */
int wb_bundle_unpack(struct wb_store *store, struct wb_object object);

/* The same for a store that no process has open, for the holder of its lock. `fd`: the file, for writing. */
int wb_bundle_unpack_into(int dir_fd, struct wb_object object, int fd);

/* Its last step: renames ID.bundle to ID.bundle-old, durably. */
int wb_bundle_retire(int dir_fd, struct wb_object object);
