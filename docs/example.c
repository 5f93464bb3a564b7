/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Lists the versions of a path, prints the file as of a time, and puts it back. Compiles as C and as C++:
 *
 *   cc -o example docs/example.c $(pkg-config --cflags --libs wayback)
 *   ./example /mnt/report.txt yesterday
 */

#include <stdio.h>
#include <unistd.h>
#include <wayback/wayback.h>

static int fail(void)
{
    fprintf(stderr, "example: %s\n", wb_error_text());
    return 1;
}

static int list_versions(struct wb_client *client, const char *path)
{
    struct wb_version_iter *iter;
    const struct wb_version_info *version;
    char time[64];
    int r = wb_version_begin(client, path, 0, 0, &iter);

    if (r < 0)
        return r;
    while ((r = wb_version_next(iter, &version)) == 0) {
        wb_time_format(version->when, WB_TIME_LOCAL, time, sizeof(time));
        printf("%s  %-8s %llu bytes\n", time, version->operation, (unsigned long long)version->size);
    }
    wb_version_end(iter);
    return r < 0 ? r : 0;
}

static int print_file(struct wb_client *client, const char *path, int64_t when)
{
    char buffer[4096];
    ssize_t n;
    int fd = wb_open_at(client, path, when);

    if (fd < 0)
        return fd;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0)
        fwrite(buffer, 1, (size_t)n, stdout);
    if (n < 0)
        perror("example: read"); /* EIO: this version cannot be rebuilt */
    close(fd);
    return n < 0; /* 1: described already */
}

static int put_back(struct wb_client *client, const char *path, int64_t when)
{
    struct wb_restore_result result;
    char time[64];
    int r;

    result.size = sizeof(result);
    r = wb_restore(client, path, when, NULL, &result);
    if (r < 0)
        return r;
    wb_time_format(result.before, WB_TIME_EPOCH, time, sizeof(time));
    printf("restored in %llu steps; to reverse that, restore to %s\n", (unsigned long long)result.actions, time);
    return 0;
}

int main(int argc, char **argv)
{
    struct wb_client *client;
    int64_t when = 0;
    int r;

    if (argc != 3) {
        fprintf(stderr, "usage: example PATH TIME\n");
        return 2;
    }
    if (wb_open(argv[1], &client) < 0)
        return fail();
    r = list_versions(client, argv[1]);
    if (r == 0)
        r = wb_time_resolve(client, argv[1], argv[2], &when);
    if (r == 0)
        r = print_file(client, argv[1], when);
    if (r == 0)
        r = put_back(client, argv[1], when);
    if (r < 0)
        fail();
    wb_close(client);
    return r ? 1 : 0;
}
