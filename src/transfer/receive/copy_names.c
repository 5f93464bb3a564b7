/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/receive/copy_names.h"

#include <errno.h>
#include <string.h>

/* What is kept of a name; it follows, without its end. */
struct entry {
    uint64_t next;
    struct wb_object dir;
    uint64_t length;
};

/* All entries of that name before that place are of no name any more. */
struct removed {
    struct wb_object name; /* first: by wb_table_key */
    uint64_t before;
};

int wb_copy_names_init(struct wb_copy_names *names, int dir_fd)
{
    /* Nothing is at 0. */
    int r = wb_scratch_init(&names->entries, dir_fd, 1);

    return r < 0 ? r : wb_table_init(&names->removed, dir_fd, sizeof(struct removed));
}

void wb_copy_names_deinit(struct wb_copy_names *names)
{
    wb_scratch_deinit(&names->entries);
    wb_table_deinit(&names->removed);
}

static int get(const struct wb_copy_names *names, uint64_t at, struct entry *entry, char name[WB_NAME_MAX + 1])
{
    int r = wb_scratch_read(&names->entries, entry, sizeof(*entry), at);

    if (r == 0)
        r = wb_scratch_read(&names->entries, name, entry->length, at + sizeof(*entry));
    if (r == 0)
        name[entry->length] = '\0';
    return r;
}

int wb_copy_names_get(const struct wb_copy_names *names, uint64_t at, struct wb_copy_name *ret)
{
    struct entry entry;
    int r = get(names, at, &entry, ret->name);

    if (r == 0)
        ret->dir = entry.dir;
    return r;
}

int wb_copy_names_add(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name)
{
    struct entry entry = {.next = *list, .dir = dir, .length = strlen(name)};
    uint8_t data[sizeof(entry) + WB_NAME_MAX];

    if (entry.length > WB_NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(data, &entry, sizeof(entry));
    memcpy(data + sizeof(entry), name, entry.length);
    return wb_scratch_append(&names->entries, data, sizeof(entry) + entry.length, list);
}

static struct wb_object key_of(const struct wb_copy_names *names, struct wb_object dir, const char *name)
{
    uint8_t data[sizeof(dir) + WB_NAME_MAX];
    size_t length = strnlen(name, WB_NAME_MAX);

    memcpy(data, &dir, sizeof(dir));
    memcpy(data + sizeof(dir), name, length);
    return wb_table_key(&names->removed, data, sizeof(dir) + length);
}

/* The first one from `at` on that was not removed. Whatever is passed over is so for good. */
static int pass_removed(const struct wb_copy_names *names, uint64_t at, uint64_t *list)
{
    char name[WB_NAME_MAX + 1];
    struct removed removed;
    struct entry entry;

    while (at) {
        int r = get(names, at, &entry, name);

        if (r == 0)
            r = wb_table_get(&names->removed, key_of(names, entry.dir, name), &removed);
        if (r < 0)
            return r;
        if (r == 0 || removed.before <= at)
            break;
        at = entry.next;
    }
    *list = at;
    return 0;
}

int wb_copy_names_next(const struct wb_copy_names *names, uint64_t at, uint64_t *ret)
{
    char name[WB_NAME_MAX + 1];
    struct entry entry;
    int r = get(names, at, &entry, name);

    return r < 0 ? r : pass_removed(names, entry.next, ret);
}

int wb_copy_names_remove(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name)
{
    char first[WB_NAME_MAX + 1];
    struct removed removed;
    struct entry entry;
    int r;

    if (!*list)
        return 0;
    r = get(names, *list, &entry, first);
    if (r < 0)
        return r;
    if (wb_object_equal(entry.dir, dir) && strcmp(first, name) == 0)
        return pass_removed(names, entry.next, list);
    removed = (struct removed){key_of(names, dir, name), names->entries.size};
    return wb_table_put(&names->removed, &removed);
}
