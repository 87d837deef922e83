/*
 * Code in assembler, which the pass does not see: it calls functions with probes and keeps its state in registers that
 * they must preserve.
 */
	.text

/* uint64_t fold(const uint64_t *values, size_t count, uint64_t start, uint64_t (*step)(uint64_t, uint64_t)) */
	.globl	fold
	.hidden	fold
	.type	fold, @function
	.p2align 4
fold:
	.cfi_startproc
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbx, -16
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbp, -24
	pushq	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_offset %r12, -32
	pushq	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_offset %r13, -40
	pushq	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_offset %r14, -48
	movq	%rdi, %rbx
	movq	%rsi, %rbp
	movq	%rdx, %r12
	movq	%rcx, %r13
	xorl	%r14d, %r14d
	jmp	2f
1:	movq	%r12, %rdi
	movq	(%rbx,%r14,8), %rsi
	call	*%r13
	movq	%rax, %r12
	incq	%r14
2:	cmpq	%rbp, %r14
	jb	1b
	movq	%r12, %rax
	popq	%r14
	.cfi_adjust_cfa_offset -8
	popq	%r13
	.cfi_adjust_cfa_offset -8
	popq	%r12
	.cfi_adjust_cfa_offset -8
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	fold, . - fold

	.section .note.GNU-stack, "", @progbits
