/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store as a directory: its header, what was under way, and what does not belong there. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/directory/store_place.h"
#include "store/identity/identities.h"
#include "store/parts.h"
#include "wayback/when.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* ---- header -------------------------------------------------------------------------------------- */

static bool is_sound(const uint8_t data[WB_HEADER_SIZE], struct wb_header *ret)
{
    return wb_header_decode(data, WB_HEADER_SIZE, ret) == 0;
}

/*
 * Whether the checksum proves the original header: only its magic, its version, or its root is wrong, and the root is
 * known from the tree. If the checksum itself may be wrong, *ret gets uuid and time as they are found.
 */
static bool guess_header(const uint8_t data[WB_HEADER_SIZE], struct wb_object root, struct wb_header *ret)
{
    uint8_t tried[WB_HEADER_SIZE], made[WB_HEADER_SIZE];

    for (uint32_t version = WB_FORMAT_OLDEST; version <= WB_FORMAT_VERSION; version++) {
        uint32_t word = htole32(version);

        memcpy(tried, data, sizeof(tried));
        memcpy(tried + 8, &word, sizeof(word));
        if (is_sound(tried, ret))
            return true;
    }
    /* magic, zeros and checksum follow from the other fields */
    *ret = (struct wb_header){.version = le32toh(*(const uint32_t *)(const void *)(data + 8)),
                              .forgotten = data[12] & 1, .manifest = data[12] & 2};
    memcpy(ret->uuid, data + 16, sizeof(ret->uuid));
    memcpy(&ret->created, data + 48, sizeof(ret->created));
    ret->created = (int64_t)le64toh((uint64_t)ret->created);
    ret->root = root;
    for (int i = 0; i < 4; i++, ret->forgotten = !ret->forgotten, ret->manifest ^= i % 2 == 0) {
        wb_header_encode(ret, made);
        if (memcmp(made + 56, data + 56, 8) == 0)
            return true;
    }
    ret->version = WB_FORMAT_VERSION;
    if (ret->created <= 0 || ret->created > wb_when_now())
        ret->created = MAX(root.birth, 1);
    return false;
}

static int mend_header(struct wb_checking *checking, const struct wb_header *header)
{
    uint8_t data[WB_HEADER_SIZE];
    int r = wb_lost_move(checking, checking->dir_fd, WB_HEADER_NAME);

    if (r < 0 && r != -ENOENT)
        return r;
    wb_header_encode(header, data);
    return wb_replace_file(checking->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
}

/* The signpost in the tree names the store: with another uuid it would be refused. */
static void take_uuid_from_signpost(struct wb_checking *checking)
{
    struct wb_store_traces traces;

    if (checking->store_path && wb_store_traces_read(checking->src_fd, &traces) == 0 &&
        traces.kind == WB_TRACE_SIGNPOST)
        memcpy(checking->header.uuid, traces.signpost.uuid, sizeof(checking->header.uuid));
}

/* The header is damaged, short or missing. */
static int bad_header(struct wb_checking *checking, const uint8_t *data, size_t length, struct wb_object root)
{
    struct wb_check_where where = {.file = WB_HEADER_NAME};
    bool certain = length == WB_HEADER_SIZE && guess_header(data, root, &checking->header);
    char path[WB_OBJECT_PATH_MAX];
    int r;

    if (!certain) {
        /* The catalog of the root shows that the store belongs to this tree. */
        wb_object_path(root, WB_FILE_CATALOG, path);
        if (faccessat(checking->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
            wb_check_report(checking, WB_CHECK_LOST, "damaged-header", where, NULL,
                            "the header is damaged, and nothing else shows whether the store belongs to this tree");
            checking->bound = false;
            return 0;
        }
        if (length < WB_HEADER_SIZE)
            checking->header = (struct wb_header){
                .version = WB_FORMAT_VERSION, .root = root, .created = MAX(root.birth, 1)};
        take_uuid_from_signpost(checking);
    }
    checking->bound = true;
    if (!wb_check_mends(checking, !certain)) {
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-header", where,
                        certain ? "can be rewritten exactly" : "-y rewrites it with the uuid and time found in it",
                        "the header is damaged; the store cannot be mounted");
        /* Nothing can be repaired in a store that cannot be opened. */
        checking->flags = 0;
        return 0;
    }
    r = mend_header(checking, &checking->header);
    checking->sound = r == 0;
    wb_check_report_mended(checking, r, "damaged-header", where, "rewritten; the old one is in lost",
                           "the header was damaged");
    return r;
}

/* Everybody's former contents are in there. */
static void check_private(struct wb_checking *checking)
{
    struct wb_check_where where = {.file = ""};
    struct stat st;

    if (fstat(checking->dir_fd, &st) < 0 || !(st.st_mode & 077))
        return;
    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, fchmod(checking->dir_fd, 0700) < 0 ? -errno : 0, "open-store", where, "closed",
                               "other users had access to the store");
    else
        wb_check_report(checking, WB_CHECK_WRONG, "open-store", where, "can be closed (mode 0700)",
                        "other users have access to the store");
}

/* The table from inodes of this tree to objects, for a tree that was copied with its store. 0 or -errno. */
static int open_identities(struct wb_checking *checking)
{
    struct wb_check_where where = {.file = WB_IDENTITIES_NAME};
    int r = wb_identities_open(&checking->identities, checking->dir_fd);
    int64_t damaged = r < 0 ? 0 : wb_identities_check(checking->identities);

    if (r < 0 && r != -EBADMSG)
        return r;
    if (damaged < 0)
        return (int)damaged;
    if (r == 0 && damaged == 0)
        return 0;
    if (!(checking->flags & WB_CHECK_REBIND))
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-identities", where, "vfsck --rebind rebuilds it",
                        "the identity map is damaged: some files can no longer be matched to their history");
    checking->identities = wb_identities_free(checking->identities);
    checking->bound = false;
    return 0;
}

int wb_check_header(struct wb_checking *checking, struct wb_error *why)
{
    _cleanup_close_ int fd = openat(checking->dir_fd, WB_HEADER_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct wb_check_where where = {.file = WB_HEADER_NAME};
    uint8_t data[WB_HEADER_SIZE + 1] = {0};
    struct wb_object root;
    size_t length = 0;
    int r = wb_object_stat(NULL, checking->src_fd, NULL, &root, NULL, NULL);

    if (r == 0 && fd >= 0)
        r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the header of the store: %s", g_strerror(-r));
    check_private(checking);
    checking->result.files++;
    r = wb_header_decode(data, length, &checking->header);
    if (r == -EPROTONOSUPPORT)
        return wb_error_set(why, r,
                            "the store has format version %u, but this program supports up to %u; use the "
                            "newer program",
                            checking->header.version, WB_FORMAT_VERSION);
    if (r < 0) {
        r = bad_header(checking, data, MIN(length, WB_HEADER_SIZE), root);
        return r < 0 ? wb_error_set(why, r, "cannot repair the header: %s", g_strerror(-r)) : 0;
    }
    checking->sound = true;
    checking->bound = true;
    r = open_identities(checking);
    if (r == 0)
        r = wb_identities_is_root(checking->identities, root, checking->header.root);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the store: %s", g_strerror(-r));
    if (!checking->bound || r > 0)
        return 0;
    checking->bound = false;
    if (!(checking->flags & WB_CHECK_REBIND))
        wb_check_report(checking, WB_CHECK_WRONG, "other-tree", where,
                        "vfsck --rebind binds it to this tree, if the tree was moved or copied here",
                        "the store belongs to another tree");
    return 0;
}

/* ---- inflight ------------------------------------------------------------------------------------- */

static uint32_t word(const uint8_t *data)
{
    uint32_t value;

    memcpy(&value, data, sizeof(value));
    return le32toh(value);
}

static uint64_t word64(const uint8_t *data)
{
    uint64_t value;

    memcpy(&value, data, sizeof(value));
    return le64toh(value);
}

static int bad_inflight(struct wb_checking *checking, const char *text)
{
    struct wb_check_where where = {.file = WB_INFLIGHT_NAME};

    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_lost_move(checking, checking->dir_fd, WB_INFLIGHT_NAME), "damaged-inflight",
                               where, "saved in lost; the next mount rebuilds it", "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-inflight", where,
                        "can be rebuilt; after a crash, changes that were never made may appear as versions", "%s",
                        text);
    return 0;
}

static bool slot_makes_sense(const uint8_t *slot)
{
    int64_t when = (int64_t)word64(slot + 8);

    return when > 0 && when < WB_WHEN_PRESENT && word(slot + 24) <= WB_FILE_CATALOG &&
           word(slot + 28) <= WB_FILE_CATALOG && word(slot + 20) == 0 && word64(slot + 32) != 0;
}

static bool all_slots_make_sense(const uint8_t data[WB_INFLIGHT_SIZE_9])
{
    for (const uint8_t *slot = data + WB_INFLIGHT_HEAD; slot < data + WB_INFLIGHT_SIZE_9; slot += WB_INFLIGHT_SLOT)
        if (word64(slot) != 0 && !slot_makes_sense(slot))
            return false;
    return true;
}

int wb_check_inflight(struct wb_checking *checking)
{
    _cleanup_close_ int fd = openat(checking->dir_fd, WB_INFLIGHT_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct wb_check_where where = {.file = WB_INFLIGHT_NAME};
    uint8_t data[WB_INFLIGHT_SIZE + 1] = {0};
    size_t length;
    int r;

    if (fd < 0)
        return errno == ENOENT ? 0 : bad_inflight(checking, "the list of changes in progress cannot be read");
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    /* Beside a daemon a slot may be read while it is written, once; not again and again. */
    for (int i = 0; i < 5 && r == 0 && length >= WB_INFLIGHT_SIZE_9 && checking->online &&
                    !all_slots_make_sense(data); i++)
        r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return r;
    checking->result.files++;
    if ((length != WB_INFLIGHT_SIZE && length != WB_INFLIGHT_SIZE_9) || memcmp(data, "WBFLIGHT", 8) != 0 ||
        word(data + 8) != WB_INFLIGHT_SLOTS)
        return bad_inflight(checking, "the list of changes in progress is damaged");
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++) {
        const uint8_t *slot = data + WB_INFLIGHT_HEAD + i * WB_INFLIGHT_SLOT;

        if (word64(slot) == 0)
            continue;
        if (!slot_makes_sense(slot))
            return bad_inflight(checking, "an entry in the list of changes in progress is damaged");
        checking->unsettled[checking->unsettled_count++] = (int64_t)word64(slot + 8);
    }
    if (checking->unsettled_count > 0 && !checking->online && !wb_check_mends(checking, false))
        wb_check_report(checking, WB_CHECK_NOTE, "unsettled", where, NULL,
                        "%u changes were in progress at a crash; the next mount completes or discards them",
                        checking->unsettled_count);
    return 0;
}

/* ---- what does not belong there -------------------------------------------------------------------- */

void wb_check_stale(struct wb_checking *checking, int dir_fd, const char *name, const char *path)
{
    struct wb_check_where where = {.file = path};

    if (checking->online)
        return; /* it is being made */
    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_lost_move(checking, dir_fd, name), "stale", where, "moved to lost",
                               "the remainder of an interrupted replacement");
    else
        wb_check_report(checking, WB_CHECK_WRONG, "stale", where, "can be moved to lost",
                        "the remainder of an interrupted replacement");
}

int wb_check_home(struct wb_checking *checking)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(checking->dir_fd, ".");
    struct wb_check_where where = {0};
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        if (wb_store_dir_knows(entry->d_name))
            continue;
        where.file = entry->d_name;
        if (g_str_has_prefix(entry->d_name, "restore-"))
            continue; /* reported with the graveyard */
        if (g_str_has_suffix(entry->d_name, ".new") || strcmp(entry->d_name, ".probe") == 0)
            wb_check_stale(checking, checking->dir_fd, entry->d_name, entry->d_name);
        else
            wb_check_report(checking, WB_CHECK_NOTE, "unknown-file", where, NULL,
                            "this file does not belong to the store");
    }
    return r;
}
