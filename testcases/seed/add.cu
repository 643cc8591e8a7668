/* Adds two vectors, as the seed's job does. Where there is no nvcc, a C compiler takes it too. */
#include <stdio.h>

#ifdef __CUDACC__
#define KERNEL __global__
#else
#define KERNEL static
#endif

enum { COUNT = 8 };

KERNEL void add(const float *a, const float *b, float *sum) {
#ifdef __CUDACC__
    int at = threadIdx.x;
    if (at < COUNT) sum[at] = a[at] + b[at];
#else
    for (int at = 0; at < COUNT; at++) sum[at] = a[at] + b[at];
#endif
}

int main(void) {
    float a[COUNT], b[COUNT], sum[COUNT];
    for (int at = 0; at < COUNT; at++) {
        a[at] = (float)at;
        b[at] = 10.0f * (float)at;
    }
#ifdef __CUDACC__
    float *da, *db, *dsum;
    cudaMalloc((void **)&da, sizeof a);
    cudaMalloc((void **)&db, sizeof b);
    cudaMalloc((void **)&dsum, sizeof sum);
    cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice);
    add<<<1, COUNT>>>(da, db, dsum);
    cudaMemcpy(sum, dsum, sizeof sum, cudaMemcpyDeviceToHost);
    cudaFree(da);
    cudaFree(db);
    cudaFree(dsum);
#else
    add(a, b, sum);
#endif
    for (int at = 0; at < COUNT; at++) printf("%g ", sum[at]);
    printf("\n");
    return 0;
}
