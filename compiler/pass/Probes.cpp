//===- Probes.cpp - Heddle's preemption probes for LLVM 14 to 22 ----------===//
//
// A pass at the end of the optimisation pipeline that makes a program check, every few microseconds, whether its turn
// is over. docs/design/probes.md describes the design and what was measured.
//
// Work is counted in cost units, about one cycle each. Every thread has a budget of them in a thread-local word. A probe
// subtracts the cost of the work since the last one; where the budget runs out it calls `__heddle_probe`, which the
// runtime hooks: there the time is read and a new budget is granted. Without Heddle that grants a large one, again and
// again, since a runtime may start at any time.
//
// Where probes go:
//   - A loop whose trips are counted ends early, at a nearer bound, once in `period` units ("bound splitting"): the loop
//     itself gets no instruction. A loop that costs little in all gets nothing.
//   - Any other loop subtracts the cost of an iteration, in a register as long as it makes no unknown call.
//   - A cycle of calls is broken by one probe in each function, before the first call that may be part of a cycle.
//
// The environment variable HEDDLE_PROBES, a list `key=value,...`, sets:
//   placement  bounded (above; the default), naive (each back edge and function entry, as Concord), none
//   check      clock (above; the default), flag (the probe tests the word instead, and subtracts nothing)
//   period     cost units between two probes (8000)
//   report     a file to which one JSON object for each function is appended
//
//===----------------------------------------------------------------------===//

#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/CallGraph.h"
#include "llvm/Analysis/DomTreeUpdater.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/Passes/PassBuilder.h"
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"
#include "llvm/Transforms/Utils/UnrollLoop.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

using namespace llvm;

namespace {

/// Version of the agreement with the runtime (docs/design/probes.md, "What the runtime finds").
constexpr uint32_t AbiVersion = 1;

/// Name of the note's owner, with the zeros that pad it. "Heddle" itself marks files that contain the runtime.
constexpr char NoteOwner[] = "Heddle-probes\0\0";
constexpr uint32_t NoteOwnerSize = 14;

/// Set on functions that have their probes, in case a pipeline runs the pass twice.
constexpr const char *DoneAttribute = "heddle-probes";

/// A loop is split only if this many iterations fit between two probes: below that a probe for each is as good.
constexpr uint64_t FewestSplitIterations = 8;

/// Cost of a call to a function of which nothing is known.
constexpr uint64_t UnknownCall = 40;

/// Trips of a loop of which nothing is known.
constexpr uint64_t UnknownTrips = 16;

/// An inner loop whose count differs at each entry charges for it only if it takes this part of a period: most are short.
constexpr uint64_t ShortShare = 32;

/// Short loops without a count are unrolled this often, so that a probe serves several iterations.
constexpr unsigned UnrollCount = 4;
constexpr unsigned MostUnrolledInstructions = 24;

/// Short functions that call themselves do one level of that inline, so that a probe serves several calls.
constexpr unsigned MostInlinedInstructions = 40;
constexpr unsigned MostInlinedCalls = 2;

/// A load whose address was loaded in the same loop, as in a walk along a list: it may miss every cache.
constexpr uint64_t DependentLoad = 20;

enum class Placement { None, Naive, Bounded };
enum class Check { Clock, Flag };

struct Settings {
  Placement Place = Placement::Bounded;
  Check Kind = Check::Clock;
  uint64_t Period = 8000;
  std::string Report;
};

/// Reads HEDDLE_PROBES; ends the compiler if it is wrong.
Settings readSettings() {
  Settings Set;
  const char *Text = std::getenv("HEDDLE_PROBES");
  if (!Text)
    return Set;
  auto Refuse = [&](StringRef Problem, StringRef Part) {
    errs() << "heddle: HEDDLE_PROBES=" << Text << ": " << Problem << " `" << Part << "`\n";
    std::exit(1);
  };
  SmallVector<StringRef, 4> Parts;
  StringRef(Text).split(Parts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef Part : Parts) {
    auto [Key, Value] = Part.split('=');
    if (Key == "placement") {
      if (Value == "bounded")
        Set.Place = Placement::Bounded;
      else if (Value == "naive")
        Set.Place = Placement::Naive;
      else if (Value == "none")
        Set.Place = Placement::None;
      else
        Refuse("placement is bounded, naive or none, not", Value);
    } else if (Key == "check") {
      if (Value == "clock")
        Set.Kind = Check::Clock;
      else if (Value == "flag")
        Set.Kind = Check::Flag;
      else
        Refuse("check is clock or flag, not", Value);
    } else if (Key == "period") {
      if (Value.getAsInteger(10, Set.Period) || Set.Period < 50 || Set.Period > 1000000)
        Refuse("period is a number of cost units from 50 to 1000000, not", Value);
    } else if (Key == "report") {
      Set.Report = Value.str();
    } else {
      Refuse("unknown setting", Key);
    }
  }
  return Set;
}

/// The symbols that a module with probes shares with all others of its program or shared object.
struct Symbols {
  GlobalVariable *State = nullptr;
  Function *Probe = nullptr;

  bool exist() const { return State; }

  /// Adds them to `M`, once.
  void define(Module &M) {
    if (exist())
      return;
    LLVMContext &C = M.getContext();
    Type *I32 = Type::getInt32Ty(C), *I64 = Type::getInt64Ty(C);

    // Budget, what was granted last, and when: the last two are the runtime's.
    auto *StateType = StructType::get(C, {I32, I32, I64});
    State = global(M, StateType, Constant::getNullValue(StateType), "__heddle_probe_state");
    State->setThreadLocalMode(GlobalValue::InitialExecTLSModel);
    State->setAlignment(Align(16));

    Type *Pointer = I64;
    GlobalVariable *Hook = global(M, Pointer, Constant::getNullValue(Pointer), "__heddle_probe_hook");
    Hook->setAlignment(Align(8));

    Probe = cast<Function>(
        M.getOrInsertFunction("__heddle_probe", FunctionType::get(Type::getVoidTy(C), false)).getCallee());
    if (Probe->isDeclaration())
      defineProbe(M);
    note(M, Hook);
    announce(M, Hook);
  }

private:
  static Comdat *comdat(Module &M, StringRef Name) {
    Comdat *D = M.getOrInsertComdat(Name);
    D->setSelectionKind(Comdat::Any);
    return D;
  }

  static GlobalVariable *global(Module &M, Type *Ty, Constant *Init, StringRef Name) {
    if (GlobalVariable *Found = M.getNamedGlobal(Name))
      return Found;
    auto *G = new GlobalVariable(M, Ty, false, GlobalValue::LinkOnceODRLinkage, Init, Name);
    G->setVisibility(GlobalValue::HiddenVisibility);
    G->setComdat(comdat(M, Name));
    // The assembly of `__heddle_probe` names it.
    appendToCompilerUsed(M, {G});
    return G;
  }

  /// The probe's slow side. It preserves all registers but r11, in which it passes the state's offset from FS on to the
  /// hook, which does the same.
  void defineProbe(Module &M) {
    LLVMContext &C = M.getContext();
    Probe->setLinkage(GlobalValue::LinkOnceODRLinkage);
    Probe->setVisibility(GlobalValue::HiddenVisibility);
    Probe->setComdat(comdat(M, "__heddle_probe"));
    Probe->setCallingConv(CallingConv::PreserveAll);
    for (Attribute::AttrKind Kind : {Attribute::Naked, Attribute::NoInline, Attribute::NoUnwind, Attribute::Cold})
      Probe->addFnAttr(Kind);
    Probe->addFnAttr(DoneAttribute);
#if LLVM_VERSION_MAJOR >= 15
    Probe->setUWTableKind(UWTableKind::Default);
#else
    Probe->addFnAttr(Attribute::UWTable);
#endif
    const char *Text = "movq __heddle_probe_state@GOTTPOFF(%rip), %r11\n"
                       "cmpq $$0, __heddle_probe_hook(%rip)\n"
                       "je 1f\n"
                       "jmpq *__heddle_probe_hook(%rip)\n"
                       "1: movl $$0x100000, %fs:(%r11)\n"
                       "ret\n";
    IRBuilder<> B(BasicBlock::Create(C, "", Probe));
    auto *Ty = FunctionType::get(Type::getVoidTy(C), false);
    B.CreateCall(Ty, InlineAsm::get(Ty, Text, "", /*hasSideEffects=*/true));
    B.CreateUnreachable();
  }

  /// A constructor that tells a runtime of the hook, if there is one already: for objects that are loaded later.
  static void announce(Module &M, GlobalVariable *Hook) {
    if (M.getFunction("__heddle_probe_announce"))
      return;
    LLVMContext &C = M.getContext();
    auto *Ty = FunctionType::get(Type::getVoidTy(C), false);
    auto *Announce = Function::Create(Ty, GlobalValue::LinkOnceODRLinkage, "__heddle_probe_announce", M);
    Announce->setVisibility(GlobalValue::HiddenVisibility);
    Announce->setComdat(comdat(M, "__heddle_probe_announce"));
    Announce->addFnAttr(Attribute::NoUnwind);
    Announce->addFnAttr(DoneAttribute);
    auto *LoadedTy = FunctionType::get(Type::getVoidTy(C), {Hook->getType()}, false);
    auto *Loaded = cast<Function>(M.getOrInsertFunction("heddle_probe_loaded", LoadedTy).getCallee());
    Loaded->setLinkage(GlobalValue::ExternalWeakLinkage);
    BasicBlock *Entry = BasicBlock::Create(C, "", Announce), *Tell = BasicBlock::Create(C, "", Announce),
               *End = BasicBlock::Create(C, "", Announce);
    IRBuilder<> B(Entry);
    B.CreateCondBr(B.CreateIsNotNull(Loaded), Tell, End);
    B.SetInsertPoint(Tell);
    B.CreateCall(LoadedTy, Loaded, {Hook});
    B.CreateBr(End);
    B.SetInsertPoint(End);
    B.CreateRetVoid();
    appendToGlobalCtors(M, Announce, 65535, Announce);
  }

  /// The ELF note by which a runtime finds the hook: version, and the hook's distance from that field.
  static void note(Module &M, GlobalVariable *Hook) {
    if (M.getNamedGlobal("__heddle_probe_note"))
      return;
    LLVMContext &C = M.getContext();
    Type *I32 = Type::getInt32Ty(C), *I64 = Type::getInt64Ty(C);
    Constant *Owner = ConstantDataArray::getString(C, StringRef(NoteOwner, sizeof(NoteOwner)), false);
    auto *Ty = StructType::get(C, {I32, I32, I32, Owner->getType(), I32, I32});
    auto *Note = new GlobalVariable(M, Ty, true, GlobalValue::LinkOnceODRLinkage, nullptr, "__heddle_probe_note");
    Constant *Indices[] = {ConstantInt::get(I32, 0), ConstantInt::get(I32, 5)};
    Constant *Field = ConstantExpr::getInBoundsGetElementPtr(Ty, Note, ArrayRef<Constant *>(Indices));
    Constant *Distance = ConstantExpr::getTrunc(
        ConstantExpr::getSub(ConstantExpr::getPtrToInt(Hook, I64), ConstantExpr::getPtrToInt(Field, I64)), I32);
    // Sizes of the owner's name without padding and of the two words after it, and the note's type.
    Note->setInitializer(ConstantStruct::get(Ty, {ConstantInt::get(I32, NoteOwnerSize), ConstantInt::get(I32, 8),
                                                  ConstantInt::get(I32, 1), Owner, ConstantInt::get(I32, AbiVersion),
                                                  Distance}));
    Note->setVisibility(GlobalValue::HiddenVisibility);
    Note->setComdat(comdat(M, "__heddle_probe_note"));
    Note->setSection(".note.heddle");
    Note->setAlignment(Align(4));
    appendToUsed(M, {Note});
  }
};

/// What callers need to know of a function that was seen.
struct Callee {
  /// Cost of a call that its own probes do not charge.
  uint64_t Cost = UnknownCall;
  /// It has probes, or calls what may have some.
  bool Probes = true;
  /// Each call passes a probe.
  bool Charges = false;
};

using Callees = DenseMap<const Function *, Callee>;

/// What was done to a function, for the report.
struct Report {
  unsigned Loops = 0, Bounded = 0, Split = 0, Latch = 0, Calls = 0;
  /// Most cost units between two probes, as far as the function itself tells.
  uint64_t Gap = 0;
  /// What it calls that is defined elsewhere, perhaps without probes.
  SetVector<StringRef> Elsewhere;
};

/// Whether `Call` can lead back to the function that makes it, for all that is known.
bool mayCallBack(const CallBase &Call, const TargetLibraryInfo &Library) {
  if (Call.isInlineAsm() || isa<IntrinsicInst>(Call))
    return false;
  const Function *F = Call.getCalledFunction();
  if (!F)
    return true;
  if (!F->isDeclaration())
    return false; // Its own calls count.
  if (F->hasFnAttribute(Attribute::NoCallback) || Call.hasFnAttr(Attribute::NoCallback))
    return false;
  if (F->doesNotAccessMemory() || F->onlyAccessesArgMemory())
    return false;
  LibFunc Known;
  if (!Library.getLibFunc(*F, Known))
    return true;
  return Known == LibFunc_qsort;
}

/// Places the probes of one function.
class Placer {
public:
  Placer(Function &F, FunctionAnalysisManager &Analyses, const Settings &Set, Symbols &Sym, Callees &Known,
         const SmallPtrSetImpl<const Function *> &Cycle)
      : F(F), Set(Set), Sym(Sym), Known(Known), Cycle(Cycle), DT(Analyses.getResult<DominatorTreeAnalysis>(F)),
        LI(Analyses.getResult<LoopAnalysis>(F)), SE(Analyses.getResult<ScalarEvolutionAnalysis>(F)),
        TTI(Analyses.getResult<TargetIRAnalysis>(F)), TLI(Analyses.getResult<TargetLibraryAnalysis>(F)),
        BFI(Analyses.getResult<BlockFrequencyAnalysis>(F)), AC(Analyses.getResult<AssumptionAnalysis>(F)),
        ORE(Analyses.getResult<OptimizationRemarkEmitterAnalysis>(F)) {}

  /// Places them. Returns whether the function was changed.
  bool run() {
    if (!Set.Report.empty())
      noteElsewhere();
    if (Set.Place == Placement::Naive)
      placeNaively();
    else
      placeBounded();
    return Changed;
  }

  Report Done;

private:
  Function &F;
  const Settings &Set;
  Symbols &Sym;
  Callees &Known;
  const SmallPtrSetImpl<const Function *> &Cycle;
  DominatorTree &DT;
  LoopInfo &LI;
  ScalarEvolution &SE;
  TargetTransformInfo &TTI;
  TargetLibraryInfo &TLI;
  BlockFrequencyInfo &BFI;
  AssumptionCache &AC;
  OptimizationRemarkEmitter &ORE;
  bool Changed = false;

  /// What an outer loop, or the function, must know of a loop: the cost of entering it once that no probe in it charges.
  struct Entered {
    uint64_t Cost;
    /// That is no more than an estimate.
    bool Guessed;
  };
  DenseMap<const Loop *, Entered> Seen;
  DenseMap<const BasicBlock *, uint64_t> BlockCost;
  DenseMap<const BasicBlock *, double> Frequency;

  /// A place for a probe, and what it charges.
  struct Site {
    Instruction *Before;
    uint64_t Cost;
    /// Often passed: worth a register.
    bool Often = false;
    /// What it charges beside that, known when the program runs; or null.
    Value *More = nullptr;
  };
  SmallVector<Site, 16> Sites;

  /// A loop that ends where a value that moves by a constant step meets a bound.
  struct Split {
    Loop *L;
    BranchInst *Exit;
    ICmpInst *Compare;
    /// Which operand of the comparison moves.
    unsigned Moving;
    int64_t Step;
    /// The comparison that keeps the loop running, with the moving value on the left.
    CmpInst::Predicate Stay;
    /// How far the nearer bound is: iterations times the step's size.
    uint64_t Distance;
    /// Cost of as many iterations, and of one.
    uint64_t Cost = 0, Iteration = 0;
    /// Inside another loop, what is left of the count is charged where the loop is entered, and this with it.
    bool ChargesEntry = false;
    uint64_t Extra = 0;
    /// It does so only for counts above this, where each entry has another; else 0. Those below are guessed.
    uint64_t Short = 0;

    Value *moving() const { return Compare->getOperand(Moving); }
    Value *bound() const { return Compare->getOperand(1 - Moving); }
    bool chargesEachEntry() const { return ChargesEntry && !Short; }
    /// Whether it begins at the same value and has the same bound in all iterations of `Outer`, which can compute them.
    bool isSameIn(const Loop &Outer) const {
      return Outer.getLoopPreheader() && Outer.isLoopInvariant(bound()) && Outer.isLoopInvariant(firstValue(*L, moving()));
    }
  };
  SmallVector<Split, 8> Splits;

  /// Moves the variables in memory to the top of the entry block: behind a probe, which ends that block, each would move
  /// the stack pointer when the function runs.
  void raiseAllocas() {
    BasicBlock &Entry = F.getEntryBlock();
    BasicBlock::iterator Top = Entry.begin();
    while (isa<AllocaInst>(*Top))
      ++Top;
    for (auto It = Top, End = Entry.end(); It != End;) {
      Instruction &I = *It++;
      if (auto *Variable = dyn_cast<AllocaInst>(&I); Variable && Variable->isStaticAlloca()) {
#if LLVM_VERSION_MAJOR >= 20
        Variable->moveBefore(Top);
#else
        Variable->moveBefore(&*Top);
#endif
      }
    }
  }

  /// The place of a probe at the function's entry.
  Instruction *entryPlace() {
    BasicBlock::iterator At = F.getEntryBlock().getFirstInsertionPt();
    while (isa<AllocaInst>(*At))
      ++At;
    return &*At;
  }

  void noteElsewhere() {
    for (const Instruction &I : instructions(F)) {
      const auto *Call = dyn_cast<CallBase>(&I);
      if (!Call || Call->isInlineAsm())
        continue;
      // These become calls of the C library, if they are long.
      if (isa<MemCpyInst>(Call))
        Done.Elsewhere.insert("memcpy");
      else if (isa<MemMoveInst>(Call))
        Done.Elsewhere.insert("memmove");
      else if (isa<MemSetInst>(Call))
        Done.Elsewhere.insert("memset");
      else if (const Function *Target = Call->getCalledFunction(); Target && Target->isDeclaration() &&
                                                                   !Target->isIntrinsic())
        Done.Elsewhere.insert(Target->getName());
    }
  }

  //===--- Costs ----------------------------------------------------------===//

  static uint64_t plus(uint64_t A, uint64_t B) { return std::min<uint64_t>(A + B, 1u << 30); }

  uint64_t costOfCall(const CallBase &Call) {
    if (Call.isInlineAsm())
      return 10;
    if (const auto *Memory = dyn_cast<MemIntrinsic>(&Call)) {
      const auto *Length = dyn_cast<ConstantInt>(Memory->getLength());
      return Length ? 4 + Length->getLimitedValue(1u << 30) / 32 : UnknownCall;
    }
    if (isa<IntrinsicInst>(Call))
      return costOfTarget(Call);
    const Function *Target = Call.getCalledFunction();
    auto Found = Known.find(Target);
    return Found == Known.end() ? UnknownCall : 4 + Found->second.Cost;
  }

  uint64_t costOfTarget(const Instruction &I) {
    InstructionCost Cost = TTI.getInstructionCost(&I, TargetTransformInfo::TCK_RecipThroughput);
    if (!Cost.isValid())
      return 1;
#if LLVM_VERSION_MAJOR >= 21
    int64_t Value = Cost.getValue();
#else
    int64_t Value = *Cost.getValue();
#endif
    return std::clamp<int64_t>(Value, 0, 1 << 20);
  }

  uint64_t costOf(const Instruction &I) {
    if (const auto *Call = dyn_cast<CallBase>(&I))
      return costOfCall(*Call);
    if (const auto *Load = dyn_cast<LoadInst>(&I); Load && isChased(*Load))
      return DependentLoad;
    return costOfTarget(I);
  }

  /// Whether the address of `Load` depends on what the same loop has loaded before.
  bool isChased(const LoadInst &Load) {
    const Loop *L = LI.getLoopFor(Load.getParent());
    const Value *At = Load.getPointerOperand()->stripInBoundsOffsets();
    if (const auto *Phi = dyn_cast<PHINode>(At); Phi && L && Phi->getParent() == L->getHeader())
      for (const Value *In : Phi->incoming_values())
        if (const auto *From = dyn_cast<LoadInst>(In); From && L->contains(From))
          return true;
    const auto *From = dyn_cast<LoadInst>(At);
    return From && L && L->contains(From);
  }

  void measureBlocks() {
    for (BasicBlock &B : F) {
      uint64_t Cost = 0;
      for (Instruction &I : B)
        Cost = plus(Cost, costOf(I));
      BlockCost[&B] = Cost;
      Frequency[&B] = double(BFI.getBlockFreq(&B).getFrequency());
    }
  }

  /// Cost of one iteration of `L`, or of the function if null, with inner loops as they were seen: on average, as far as
  /// branches have known or assumed weights, and at most, but for inner loops that are guessed.
  struct Iteration {
    uint64_t Average, Most;
    bool Guessed;
  };
  Iteration iteration(const Loop *L) {
    const BasicBlock *Head = L ? L->getHeader() : &F.getEntryBlock();
    double Once = std::max(Frequency.lookup(Head), 1.0), Average = 0;
    Iteration It = {0, 0, false};
    auto Add = [&](const BasicBlock *B, uint64_t Cost) {
      Average += double(Cost) * Frequency.lookup(B) / Once;
      It.Most = plus(It.Most, Cost);
    };
    auto Blocks = [&](auto &&Range) {
      for (const BasicBlock *B : Range)
        if (LI.getLoopFor(B) == L)
          Add(B, BlockCost.lookup(B));
    };
    if (L)
      Blocks(L->blocks());
    else
      for (const BasicBlock &B : F)
        if (!LI.getLoopFor(&B))
          Add(&B, BlockCost.lookup(&B));
    for (const Loop *Inner : L ? L->getSubLoops() : LI.getTopLevelLoops()) {
      Entered E = Seen.lookup(Inner);
      const BasicBlock *Before = Inner->getLoopPreheader();
      Average += double(E.Cost) * Frequency.lookup(Before ? Before : Inner->getHeader()) / Once;
      // Loops that are guessed have probes of their own.
      It.Most = plus(It.Most, E.Guessed ? 0 : E.Cost);
      It.Guessed |= E.Guessed;
    }
    It.Average = std::clamp<uint64_t>(uint64_t(std::min(Average, 1e9)), 1, 1u << 30);
    It.Most = std::max<uint64_t>(It.Most, 1);
    if (!It.Guessed)
      It.Average = std::min(It.Average, It.Most);
    return It;
  }

  //===--- Placement ------------------------------------------------------===//

  void placeNaively() {
    SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 8> Edges;
    FindFunctionBackedges(F, Edges);
    SmallPtrSet<const BasicBlock *, 8> From;
    for (auto &Edge : Edges)
      if (From.insert(Edge.first).second)
        Sites.push_back({const_cast<BasicBlock *>(Edge.first)->getTerminator(), 20});
    Done.Loops = Done.Latch = Sites.size();
    Sites.push_back({entryPlace(), 20});
    Done.Calls = 1;
    insertSites();
  }

  void placeBounded() {
    for (Loop *L : LI.getTopLevelLoops())
      simplify(L);
#if LLVM_VERSION_MAJOR < 18
    turnDisjointOrs();
#endif
    measureBlocks();
    SmallVector<Loop *, 16> Loops = LI.getLoopsInPreorder();
    Done.Loops = Loops.size();
    for (Loop *L : reverse(Loops))
      placeInLoop(*L);
    placeInIrreducible();
    Iteration Call = iteration(nullptr);
    bool Charges = placeAtCalls(Call);
    Known[&F] = {Charges ? 0 : std::min(Call.Average, Set.Period),
                 !Sites.empty() || !Splits.empty() || callsWithProbes(), Charges};
    Done.Gap = std::max(Done.Gap, Call.Most);
    for (Split &S : Splits)
      split(S);
    insertSites();
  }

  void simplify(Loop *L) {
    // Inner loops too. It keeps the analyses, but forgets the frequency of the blocks that it adds; those are few.
    Changed |= simplifyLoop(L, &DT, &LI, &SE, nullptr, nullptr, false);
  }

#if LLVM_VERSION_MAJOR < 18
  /// LLVM before 18 writes an addition to a multiple of a power of two as `or`, after which scalar evolution no longer
  /// knows that an induction variable is such a multiple, and addressing in the split loop gets worse.
  void turnDisjointOrs() {
    const DataLayout &DL = F.getParent()->getDataLayout();
    SmallVector<BinaryOperator *, 8> Found;
    for (Instruction &I : instructions(F))
      if (I.getOpcode() == Instruction::Or && LI.getLoopFor(I.getParent()) && I.getType()->isIntegerTy() &&
          haveNoCommonBitsSet(I.getOperand(0), I.getOperand(1), DL))
        Found.push_back(cast<BinaryOperator>(&I));
    for (BinaryOperator *Or : Found) {
      auto *Add = BinaryOperator::CreateAdd(Or->getOperand(0), Or->getOperand(1), "", Or);
      Add->takeName(Or);
      SE.forgetValue(Or);
      Or->replaceAllUsesWith(Add);
      Or->eraseFromParent();
      Changed = true;
    }
  }
#endif

  void placeInLoop(Loop &L) {
    Iteration It = iteration(&L);
    Done.Gap = std::max(Done.Gap, It.Most);
    uint64_t Trips = SE.getSmallConstantMaxTripCount(&L);
    if (Trips && Trips <= Set.Period && Trips * It.Most <= Set.Period / 4 && !It.Guessed) {
      Seen[&L] = {Trips * It.Most, false};
      ++Done.Bounded;
      return;
    }
    if (isChargedByCalls(L)) {
      Seen[&L] = {0, false};
      ++Done.Bounded;
      return;
    }
    CallBase *Call = cycleInEachIteration(L);
    if (Call && Call->getCalledFunction() == &F) {
      AtEntry = true;
      Seen[&L] = {0, false};
      return;
    }
    // An inner loop that is entered in each iteration charges for this one, too.
    if (Split *Inner = entryInEachIteration(L)) {
      Inner->Extra = std::min(It.Average, Set.Period);
      Seen[&L] = {0, false};
      ++Done.Bounded;
      return;
    }
    if (Call) {
      Sites.push_back({Call, It.Average});
      Covered.push_back(Call);
      Seen[&L] = {0, false};
      ++Done.Calls;
      return;
    }
    uint64_t Iterations = Set.Period / It.Average;
    // What is guessed of inner loops may be wrong by far: then each iteration is charged, and time corrects the guess.
    if (Set.Period / It.Most >= FewestSplitIterations && !It.Guessed) {
      if (auto S = splittable(L, Iterations)) {
        S->Cost = std::min<uint64_t>(Iterations * It.Average, 1u << 30);
        S->Iteration = It.Average;
        S->ChargesEntry = L.getParentLoop();
        uint64_t Expected = std::min(expectedTrips(L), Iterations / 2);
        if (S->ChargesEntry && !S->isSameIn(*L.getParentLoop())) {
          S->Short = std::max<uint64_t>(Set.Period / ShortShare / It.Average, 1);
          Expected = std::min(Expected, S->Short);
        }
        Splits.push_back(*S);
        Seen[&L] = {S->chargesEachEntry() ? 0 : std::max<uint64_t>(Expected, 1) * It.Average, !S->ChargesEntry};
        ++Done.Split;
        return;
      }
    }
    bool Often = L.isInnermost();
    uint64_t Copies = unroll(L) ? UnrollCount : 1;
    SmallVector<BasicBlock *, 4> Latches;
    L.getLoopLatches(Latches);
    for (BasicBlock *Latch : Latches)
      Sites.push_back({Latch->getTerminator(), Copies * It.Average, Often});
    // Of the last copies some are not charged.
    Seen[&L] = {Copies / 2 * It.Average, false};
    ++Done.Latch;
  }

  /// Unrolls `L` if it is short, innermost and plain code. Each copy keeps its exits, as nothing is known of the count.
  bool unroll(Loop &L) {
    if (!L.isInnermost() || !L.isLoopSimplifyForm() || !L.isSafeToClone() || F.hasOptSize() || F.hasOptNone() ||
        getBooleanLoopAttribute(&L, "llvm.loop.unroll.disable"))
      return false;
    size_t Instructions = 0;
    for (const BasicBlock *B : L.blocks()) {
      Instructions += B->size();
      for (const Instruction &I : *B)
        if (isa<CallBase>(I) && !isa<IntrinsicInst>(I))
          return false;
    }
    if (Instructions > MostUnrolledInstructions)
      return false;
    formLCSSA(L, DT, &LI, &SE);
    UnrollLoopOptions Options = {};
    Options.Count = UnrollCount;
    Options.Force = true;
    auto Result = UnrollLoop(&L, Options, &LI, &SE, &DT, &AC, &TTI, &ORE, /*PreserveLCSSA=*/true);
    Changed |= Result != LoopUnrollResult::Unmodified;
    return Result == LoopUnrollResult::PartiallyUnrolled;
  }

  uint64_t expectedTrips(Loop &L) {
    if (uint64_t Exact = SE.getSmallConstantTripCount(&L))
      return Exact;
    if (auto Profiled = getLoopEstimatedTripCount(&L))
      return *Profiled;
    return UnknownTrips;
  }

  /// Whether each iteration of `L` makes a call that passes a probe.
  bool isChargedByCalls(const Loop &L) {
    const BasicBlock *Latch = L.getLoopLatch();
    for (const BasicBlock *B : L.blocks())
      if (Latch && LI.getLoopFor(B) == &L && DT.dominates(B, Latch))
        for (const Instruction &I : *B)
          if (const auto *Call = dyn_cast<CallBase>(&I)) {
            auto Found = Known.find(Call->getCalledFunction());
            if (Found != Known.end() && Found->second.Charges)
              return true;
          }
    return false;
  }

  Split *entryInEachIteration(const Loop &L) {
    const BasicBlock *Latch = L.getLoopLatch();
    for (Split &S : Splits)
      if (Latch && S.chargesEachEntry() && S.L->getParentLoop() == &L && DT.dominates(S.L->getLoopPreheader(), Latch))
        return &S;
    return nullptr;
  }

  /// A call that may be part of a cycle and that each iteration of `L` makes: a probe before it serves both.
  CallBase *cycleInEachIteration(const Loop &L) {
    const BasicBlock *Latch = L.getLoopLatch();
    for (BasicBlock *B : L.blocks())
      if (Latch && LI.getLoopFor(B) == &L && DT.dominates(B, Latch))
        for (Instruction &I : *B)
          if (auto *Call = dyn_cast<CallBase>(&I); Call && isInCycle(*Call))
            return Call;
    return nullptr;
  }

  /// A probe at the function's entry serves its loops that call the function itself in each iteration.
  bool AtEntry = false;

  /// Calls that have a probe right before them.
  SmallVector<CallBase *, 4> Covered;

  /// Loops that can be entered in several places are none to LoopInfo.
  void placeInIrreducible() {
    SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 8> Edges;
    FindFunctionBackedges(F, Edges);
    SmallPtrSet<const BasicBlock *, 4> From;
    for (auto &[Latch, Head] : Edges) {
      const Loop *L = LI.getLoopFor(Head);
      if ((L && L->getHeader() == Head && L->contains(Latch)) || !From.insert(Latch).second)
        continue;
      Sites.push_back({const_cast<BasicBlock *>(Latch)->getTerminator(), 20});
      ++Done.Loops;
      ++Done.Latch;
    }
  }

  /// Puts a probe before the calls that may be part of a cycle, at the nearest place that dominates them and lies in no
  /// loop; and in a function that costs much by itself. Returns whether that charges for calls of the function.
  bool placeAtCalls(const Iteration &Call) {
    BasicBlock *At = nullptr;
    for (BasicBlock &B : F)
      for (Instruction &I : B)
        if (auto *C = dyn_cast<CallBase>(&I); C && DT.isReachableFromEntry(&B) && isInCycle(*C) && !isCovered(*C))
          At = At ? DT.findNearestCommonDominator(At, &B) : &B;
    AtEntry |= Call.Most > Set.Period / 4;
    if (AtEntry)
      At = &F.getEntryBlock();
    if (!At)
      return false;
    while (true) {
      const Loop *L = LI.getLoopFor(At);
      if (!L && At->getFirstInsertionPt() != At->end() && !At->isEHPad())
        break;
      At = DT.getNode(L ? L->getHeader() : At)->getIDom()->getBlock();
    }
    // Before the first such call of the block, if it has one; else at its end.
    Instruction *Before = At->getTerminator();
    for (Instruction &I : *At)
      if (auto *C = dyn_cast<CallBase>(&I); C && isInCycle(*C)) {
        Before = &I;
        break;
      }
    if (AtEntry)
      Before = entryPlace();
    // Nothing may come between a musttail call and its return, but before it is fine.
    Sites.push_back({Before, std::min(Call.Average, Set.Period)});
    ++Done.Calls;
    return At == &F.getEntryBlock();
  }

  bool isCovered(const CallBase &Call) const {
    return any_of(Covered, [&](const CallBase *Probed) { return Probed == &Call || DT.dominates(Probed, &Call); });
  }

  bool isInCycle(const CallBase &Call) const {
    const Function *Target = Call.getCalledFunction();
    if (Target && Cycle.count(Target))
      return true;
    return !Call.doesNotReturn() && mayCallBack(Call, TLI);
  }

  /// Whether `Call` may change the budget.
  bool hasProbes(const CallBase &Call) const {
    const Function *Target = Call.getCalledFunction();
    auto Found = Known.find(Target);
    if (Target && Found != Known.end())
      return Found->second.Probes;
    if (Target && !Target->isDeclaration() && !isa<IntrinsicInst>(Call))
      return true;
    return mayCallBack(Call, TLI);
  }

  bool callsWithProbes() const {
    for (const BasicBlock &B : F)
      for (const Instruction &I : B)
        if (const auto *C = dyn_cast<CallBase>(&I); C && hasProbes(*C))
          return true;
    return false;
  }

  //===--- Bound splitting ------------------------------------------------===//

  std::optional<Split> splittable(Loop &L, uint64_t Iterations) {
    BasicBlock *Latch = L.getLoopLatch();
    if (!Latch || !L.getLoopPreheader())
      return std::nullopt;
    SmallVector<BasicBlock *, 4> Exiting;
    L.getExitingBlocks(Exiting);
    for (BasicBlock *B : Exiting)
      if (DT.dominates(B, Latch) && LI.getLoopFor(B) == &L)
        if (auto S = splittableAt(L, *B, Iterations))
          return S;
    return std::nullopt;
  }

  std::optional<Split> splittableAt(Loop &L, BasicBlock &B, uint64_t Iterations) {
    auto *Exit = dyn_cast<BranchInst>(B.getTerminator());
    if (!Exit || !Exit->isConditional() || Exit->getSuccessor(0) == Exit->getSuccessor(1))
      return std::nullopt;
    auto *Compare = dyn_cast<ICmpInst>(Exit->getCondition());
    // The comparison is replaced for this exit only, so it must be evaluated here.
    if (!Compare || !L.contains(Compare))
      return std::nullopt;
    bool ExitsIfTrue = !L.contains(Exit->getSuccessor(0));
    for (unsigned Moving : {0u, 1u}) {
      Value *X = Compare->getOperand(Moving), *Bound = Compare->getOperand(1 - Moving);
      if (!L.isLoopInvariant(Bound) || !SE.isSCEVable(X->getType()))
        continue;
      auto *Recurrence = dyn_cast<SCEVAddRecExpr>(SE.getSCEV(X));
      if (!Recurrence || Recurrence->getLoop() != &L || !Recurrence->isAffine())
        continue;
      auto *Constant = dyn_cast<SCEVConstant>(Recurrence->getStepRecurrence(SE));
      if (!Constant || Constant->getAPInt().getBitWidth() > 64)
        continue;
      int64_t Step = Constant->getAPInt().getSExtValue();
      if (Step == 0 || Step > (1 << 24) || Step < -(1 << 24))
        continue;
      CmpInst::Predicate Stay = Moving == 0 ? Compare->getPredicate() : Compare->getSwappedPredicate();
      if (ExitsIfTrue)
        Stay = CmpInst::getInversePredicate(Stay);
      bool Up = Stay == CmpInst::ICMP_SLT || Stay == CmpInst::ICMP_SLE || Stay == CmpInst::ICMP_ULT ||
                Stay == CmpInst::ICMP_ULE;
      if (Stay != CmpInst::ICMP_NE && (Stay == CmpInst::ICMP_EQ || Up != (Step > 0)))
        continue;
      uint64_t Distance = Iterations * uint64_t(Step > 0 ? Step : -Step);
      unsigned Bits = X->getType()->isPointerTy() ? 64 : X->getType()->getScalarSizeInBits();
      // Of narrow types few values are left to be nearer.
      if (Bits < 32 || Bits > 64 || Distance >> (Bits - 1))
        continue;
      // The first value must be there before the loop.
      if (!firstValue(L, X))
        continue;
      return Split{&L, Exit, Compare, Moving, Step, Stay, Distance};
    }
    return std::nullopt;
  }

  /// The value of `X` at its first comparison, if it is at hand: `X` is a phi of the header, or one plus a constant.
  /// Then it is that phi's initial value plus the constant.
  static Value *firstValue(const Loop &L, Value *X) {
    auto *Phi = headerPhi(L, X);
    return Phi ? Phi->getIncomingValueForBlock(L.getLoopPreheader()) : nullptr;
  }

  static PHINode *headerPhi(const Loop &L, Value *X) {
    if (auto *Phi = dyn_cast<PHINode>(X))
      return Phi->getParent() == L.getHeader() ? Phi : nullptr;
    if (auto *Add = dyn_cast<BinaryOperator>(X); Add && Add->getOpcode() == Instruction::Add)
      return isa<ConstantInt>(Add->getOperand(1)) ? headerPhi(L, Add->getOperand(0)) : nullptr;
    if (auto *Element = dyn_cast<GetElementPtrInst>(X); Element && Element->hasAllConstantIndices())
      return headerPhi(L, Element->getPointerOperand());
    return nullptr;
  }

  /// Writes, before `B`'s place, the first value of `X` in the loop.
  Value *emitFirst(IRBuilder<> &B, Loop &L, Value *X) {
    if (auto *Phi = dyn_cast<PHINode>(X))
      return Phi->getIncomingValueForBlock(L.getLoopPreheader());
    auto *Copy = cast<Instruction>(X)->clone();
    // The values that the flags forbid may be computed here although the loop would have branched away before.
    Copy->dropPoisonGeneratingFlags();
    Copy->setOperand(0, emitFirst(B, L, Copy->getOperand(0)));
    return B.Insert(Copy);
  }

  /// Returns whether the bound is more than `Distance` from the moving value `X`, if it is ahead, and how far it is.
  std::pair<Value *, Value *> emitFar(IRBuilder<> &B, const Split &S, Value *X, Value *Bound, uint64_t Distance) {
    Type *Ty = X->getType();
    bool Pointer = Ty->isPointerTy();
    Type *Int = Pointer ? B.getInt64Ty() : Ty;
    Value *XInt = Pointer ? B.CreatePtrToInt(X, Int) : X;
    Value *BoundInt = Pointer ? B.CreatePtrToInt(Bound, Int) : Bound;
    Value *Left = S.Step > 0 ? B.CreateSub(BoundInt, XInt) : B.CreateSub(XInt, BoundInt);
    // Unsigned, and so right also where the two have different signs.
    return {B.CreateICmpUGT(Left, ConstantInt::get(Int, Distance)), Left};
  }

  /// Returns the nearer bound for the moving value `X`: `Bound` itself, or a value `Distance` from `X` if that comes
  /// before it. If `Holds`, `X` is known to be on the near side of the bound. `Charge` is set to the cost of the way to
  /// the nearer bound, if asked for.
  Value *emitNearer(IRBuilder<> &B, const Split &S, Value *X, Value *Bound, bool Holds, Value **Charge = nullptr) {
    Type *Ty = X->getType();
    bool Pointer = Ty->isPointerTy();
    auto [Far, Left] = emitFar(B, S, X, Bound, S.Distance);
    Type *Int = Left->getType();
    Value *Distance = ConstantInt::get(Int, S.Distance);
    Value *Way = Charge ? B.CreateSelect(Far, Distance, Left) : nullptr;
    if (!Holds && S.Stay != CmpInst::ICMP_NE) {
      // Not a logical `and`: it may be poison only where the bound is, on which the loop branches anyway.
      Value *Near = B.CreateICmp(S.Stay, X, Bound);
      Far = B.CreateAnd(Far, Near);
      if (Charge)
        Way = B.CreateSelect(Near, Way, ConstantInt::get(Int, 0));
    }
    if (Charge) {
      // No more than the period, and so no overflow. In 256ths if the step does not divide the cost.
      uint64_t Step = S.Step > 0 ? S.Step : -S.Step;
      unsigned Shift = S.Iteration % Step == 0 ? 0 : 8;
      uint64_t Scale = std::max<uint64_t>((S.Iteration << Shift) / Step, 1);
      Value *Wide = B.CreateMul(B.CreateZExtOrTrunc(Way, B.getInt64Ty()), B.getInt64(Scale));
      *Charge = B.CreateTrunc(B.CreateLShr(Wide, Shift), B.getInt32Ty());
    }
    Value *Nearer;
    if (Pointer) {
      Type *Byte = B.getInt8Ty();
#if LLVM_VERSION_MAJOR < 17
      Value *Base = B.CreateBitCast(X, B.getInt8PtrTy(Ty->getPointerAddressSpace()));
#else
      Value *Base = X;
#endif
      int64_t Offset = S.Step > 0 ? int64_t(S.Distance) : -int64_t(S.Distance);
      Nearer = B.CreateGEP(Byte, Base, ConstantInt::getSigned(B.getInt64Ty(), Offset));
      if (Nearer->getType() != Ty)
        Nearer = B.CreateBitCast(Nearer, Ty);
    } else {
      Nearer = S.Step > 0 ? B.CreateAdd(X, Distance) : B.CreateSub(X, Distance);
    }
    return B.CreateSelect(Far, Nearer, Bound);
  }

  /// Keeps later passes from relating the result to `X`: else loop-strength reduction keeps the distance to the bound
  /// in a register of the loop.
  static Value *hide(IRBuilder<> &B, Value *X) {
    auto *Ty = FunctionType::get(X->getType(), {X->getType()}, false);
    return B.CreateCall(Ty, InlineAsm::get(Ty, "", "=r,0", /*hasSideEffects=*/false), {X});
  }

  /// Before a loop that may be short: computes the nearer bound, and charges for the way to it, only if it is long.
  Value *emitIfLong(Split &S) {
    BasicBlock *Before = S.L->getLoopPreheader();
    Value *X = S.moving(), *Bound = S.bound();
    IRBuilder<> B(Before->getTerminator());
    Value *First = emitFirst(B, *S.L, X);
    uint64_t Step = S.Step > 0 ? S.Step : -S.Step;
    Value *IsLong = emitFar(B, S, First, Bound, S.Short * Step).first;
    MDNode *Unlikely = MDBuilder(F.getContext()).createBranchWeights(1, 8);
    Instruction *Then = splitAndInsertIfThen(IsLong, Before->getTerminator(), Unlikely);
    B.SetInsertPoint(Then);
    Value *Charge = nullptr;
    Value *Nearer = emitNearer(B, S, First, Bound, false, &Charge);
    Sites.push_back({Then, S.Iteration, false, Charge});
    BasicBlock *After = S.L->getLoopPreheader();
    B.SetInsertPoint(After, After->begin());
    PHINode *Initial = B.CreatePHI(X->getType(), 2, "heddle.initial");
    Initial->addIncoming(Bound, Before);
    Initial->addIncoming(Nearer, Then->getParent());
    return Initial;
  }

  void split(Split &S) {
    Loop &L = *S.L;
    BasicBlock *Header = L.getHeader(), *Latch = L.getLoopLatch(), *Before = L.getLoopPreheader();
    BasicBlock *Test = S.Exit->getParent();
    unsigned Inside = L.contains(S.Exit->getSuccessor(0)) ? 0 : 1;
    BasicBlock *In = S.Exit->getSuccessor(Inside), *Out = S.Exit->getSuccessor(1 - Inside);
    Value *X = S.moving(), *Bound = S.bound();
    LLVMContext &C = F.getContext();

    // The first nearer bound is computed as far out as it does not change.
    BasicBlock *Outside = Before;
    for (Loop *Outer = L.getParentLoop(); Outer && S.isSameIn(*Outer); Outer = Outer->getParentLoop())
      Outside = Outer->getLoopPreheader();
    IRBuilder<> B(Outside->getTerminator());
    Value *Initial, *Charge = nullptr;
    if (S.Short) {
      Initial = emitIfLong(S);
      Before = L.getLoopPreheader();
    } else {
      Initial = emitNearer(B, S, emitFirst(B, L, X), Bound, false, S.ChargesEntry ? &Charge : nullptr);
      if (Charge)
        Sites.push_back({Before->getTerminator(), S.Iteration + S.Extra, false, Charge});
    }
    B.SetInsertPoint(Header, Header->begin());
    PHINode *Near = B.CreatePHI(X->getType(), 2, "heddle.near");
    Near->addIncoming(Initial, Before);

    // Test: if X keeps the loop running by the nearer bound, go on. Else At: by the true one? Else leave. Then the probe.
    BasicBlock *At = BasicBlock::Create(C, "heddle.at", &F, Out);
    BasicBlock *Again = BasicBlock::Create(C, "heddle.again", &F, Out);
    MDNode *Likely = MDBuilder(C).createBranchWeights(1u << 12, 1);
    // Short loops leave there; long ones do not notice.
    MDNode *Leaves = MDBuilder(C).createBranchWeights(1, 64);

    B.SetInsertPoint(S.Exit);
    B.SetCurrentDebugLocation(S.Exit->getDebugLoc());
    Value *Stays = B.CreateICmp(S.Stay, X, Near);
    // From the latch both ways lead to the header. The loop is made two then, nested: the inner one as short as before.
    bool IsLatch = In == Header;
    BasicBlock *Go = IsLatch ? Header : BasicBlock::Create(C, "heddle.go", &F, In);
    BranchInst *Exit = B.CreateCondBr(Stays, Go, At, Likely);
    for (Site &Other : Sites)
      if (Other.Before == S.Exit)
        Other.Before = Exit;

    B.SetInsertPoint(At);
    B.CreateCondBr(B.CreateICmp(S.Stay, X, Bound), Again, Out, Leaves);

    B.SetInsertPoint(Again);
    Value *Next = emitNearer(B, S, hide(B, X), Bound, true);
    Instruction *End = B.CreateBr(Go);

    Out->replacePhiUsesWith(Test, At);
    if (IsLatch) {
      for (PHINode &Phi : Header->phis())
        if (&Phi != Near)
          Phi.addIncoming(Phi.getIncomingValueForBlock(Test), Again);
      Near->addIncoming(Near, Test);
      Near->addIncoming(Next, Again);
    } else {
      B.SetInsertPoint(Go);
      PHINode *Merged = B.CreatePHI(X->getType(), 2, "heddle.nearer");
      Merged->addIncoming(Near, Test);
      Merged->addIncoming(Next, Again);
      B.CreateBr(In);
      In->replacePhiUsesWith(Test, Go);
      Near->addIncoming(Merged, Latch);
      L.addBasicBlockToLoop(Go, LI);
    }
    S.Exit->eraseFromParent();
    // It may serve other users, as a value; then it stays.
    if (S.Compare->use_empty())
      S.Compare->eraseFromParent();

    L.addBasicBlockToLoop(At, LI);
    L.addBasicBlockToLoop(Again, LI);
    SmallVector<DominatorTree::UpdateType, 8> Updates = {{DominatorTree::Delete, Test, Out},
                                                         {DominatorTree::Insert, Test, At},
                                                         {DominatorTree::Insert, At, Again},
                                                         {DominatorTree::Insert, At, Out},
                                                         {DominatorTree::Insert, Again, Go}};
    if (!IsLatch) {
      Updates.push_back({DominatorTree::Delete, Test, In});
      Updates.push_back({DominatorTree::Insert, Test, Go});
      Updates.push_back({DominatorTree::Insert, Go, In});
    }
    DT.applyUpdates(Updates);
    SE.forgetLoop(&L);
    Sites.push_back({End, S.Cost});
    if (IsLatch)
      simplifyLoop(&L, &DT, &LI, &SE, nullptr, nullptr, false);
    Changed = true;
  }

  //===--- Probes ---------------------------------------------------------===//

  /// The outermost loop around `At` in which no call may change the budget, and whose way in and out is plain.
  Loop *home(const Instruction *At) {
    Loop *Best = nullptr;
    for (Loop *L = LI.getLoopFor(At->getParent()); L && isPlain(*L); L = L->getParentLoop())
      Best = L;
    return Best;
  }

  DenseMap<const Loop *, bool> Plain;
  bool isPlain(const Loop &L) {
    auto Found = Plain.find(&L);
    if (Found != Plain.end())
      return Found->second;
    bool Is = L.getLoopPreheader() != nullptr;
    for (const BasicBlock *B : L.blocks())
      for (const Instruction &I : *B)
        if (const auto *Call = dyn_cast<CallBase>(&I))
          Is &= !hasProbes(*Call) && !isa<InvokeInst>(Call);
    SmallVector<BasicBlock *, 4> Exits;
    L.getUniqueExitBlocks(Exits);
    for (BasicBlock *B : Exits) {
      Is &= !B->isEHPad();
      for (BasicBlock *From : predecessors(B))
        Is &= L.contains(From);
    }
    return Plain[&L] = Is;
  }

  void insertSites() {
    if (Sites.empty())
      return;
    Sym.define(*F.getParent());
    raiseAllocas();
    Changed = true;
    // Homes are found before any block is split.
    SmallVector<Loop *, 16> Homes;
    for (Site &S : Sites)
      Homes.push_back(Set.Kind == Check::Clock && Set.Place == Placement::Bounded ? home(S.Before) : nullptr);
    DenseMap<Loop *, AllocaInst *> Registers;
    SmallVector<AllocaInst *, 4> Variables;
    for (size_t I = 0; I < Sites.size(); ++I)
      if (Loop *L = Homes[I]; L && Sites[I].Often && !Registers.count(L)) {
        Registers[L] = enter(*L);
        Variables.push_back(Registers[L]);
      }
    // Where the nest has no register, the lookup gives null: the thread's word.
    for (size_t I = 0; I < Sites.size(); ++I)
      insert(Sites[I], Registers.lookup(Homes[I]));
    if (!Variables.empty())
      PromoteMemToReg(Variables, DT);
  }

  Value *word(IRBuilder<> &B) {
    // The state's first field.
#if LLVM_VERSION_MAJOR >= 17
    return state(B);
#else
    return B.CreateBitCast(state(B), B.getInt32Ty()->getPointerTo());
#endif
  }

  Value *state(IRBuilder<> &B) {
#if LLVM_VERSION_MAJOR >= 15
    return B.CreateThreadLocalAddress(Sym.State);
#else
    return Sym.State;
#endif
  }

  /// Makes a variable hold the budget while `L` runs.
  AllocaInst *enter(Loop &L) {
    IRBuilder<> B(&*F.getEntryBlock().getFirstInsertionPt());
    AllocaInst *Variable = B.CreateAlloca(B.getInt32Ty(), nullptr, "heddle.budget");
    B.SetInsertPoint(L.getLoopPreheader()->getTerminator());
    B.CreateStore(B.CreateLoad(B.getInt32Ty(), word(B)), Variable);
    SmallVector<BasicBlock *, 4> Exits;
    L.getUniqueExitBlocks(Exits);
    for (BasicBlock *Exit : Exits) {
      B.SetInsertPoint(&*Exit->getFirstInsertionPt());
      B.CreateStore(B.CreateLoad(B.getInt32Ty(), Variable), word(B));
    }
    return Variable;
  }

  Instruction *splitAndInsertIfThen(Value *Condition, Instruction *Before, MDNode *Weights) {
#if LLVM_VERSION_MAJOR >= 17
    DomTreeUpdater Updater(DT, DomTreeUpdater::UpdateStrategy::Eager);
    return SplitBlockAndInsertIfThen(Condition, Before->getIterator(), false, Weights, &Updater, &LI);
#else
    return SplitBlockAndInsertIfThen(Condition, Before, false, Weights, &DT, &LI);
#endif
  }

  void insert(const Site &S, AllocaInst *Register) {
    IRBuilder<> B(S.Before);
    Value *At = Register ? Register : word(B);
    Value *Word = B.CreateLoad(B.getInt32Ty(), At);
    Value *Due;
    if (Set.Kind == Check::Flag) {
      Due = B.CreateICmpNE(Word, B.getInt32(0));
    } else {
      Value *Cost = B.getInt32(uint32_t(std::clamp<uint64_t>(S.Cost, 1, 1u << 30)));
      if (S.More)
        Cost = B.CreateAdd(Cost, S.More);
      Due = B.CreateICmpULT(Word, Cost);
      B.CreateStore(B.CreateSub(Word, Cost), At);
    }
    MDNode *Unlikely = MDBuilder(F.getContext()).createBranchWeights(1, 1u << 20);
    Instruction *Then = splitAndInsertIfThen(Due, S.Before, Unlikely);
    B.SetInsertPoint(Then);
    B.SetCurrentDebugLocation(S.Before->getDebugLoc());
    CallInst *Call = B.CreateCall(Sym.Probe->getFunctionType(), Sym.Probe);
    Call->setCallingConv(CallingConv::PreserveAll);
    Call->addFnAttr(Attribute::NoUnwind);
    Call->addFnAttr(Attribute::Cold);
    if (Register)
      B.CreateStore(B.CreateLoad(B.getInt32Ty(), word(B)), Register);
  }
};

/// Functions that are annotated `heddle-no-probes`, which clang notes in a table of the module.
SmallPtrSet<const Function *, 4> unwilling(const Module &M) {
  SmallPtrSet<const Function *, 4> Found;
  const GlobalVariable *Table = M.getNamedGlobal("llvm.global.annotations");
  const auto *Entries = Table ? dyn_cast<ConstantArray>(Table->getInitializer()) : nullptr;
  if (!Entries)
    return Found;
  for (const Use &Entry : Entries->operands()) {
    const auto *Fields = dyn_cast<ConstantStruct>(Entry);
    const auto *Text = Fields ? dyn_cast<GlobalVariable>(Fields->getOperand(1)->stripPointerCasts()) : nullptr;
    const auto *Data = Text ? dyn_cast<ConstantDataSequential>(Text->getInitializer()) : nullptr;
    if (Data && Data->isCString() && Data->getAsCString() == "heddle-no-probes")
      if (const auto *F = dyn_cast<Function>(Fields->getOperand(0)->stripPointerCasts()))
        Found.insert(F);
  }
  return Found;
}

/// Inlines the calls that `F`, a cycle by itself, makes to itself, if it is short and has no variables in memory: there
/// are fewer frames then, which together are no larger. Returns whether it did.
bool inlineOneLevel(Function &F, FunctionAnalysisManager &FAM) {
  if (F.hasFnAttribute(Attribute::NoInline) || F.hasOptSize() || F.hasOptNone() || F.isVarArg() ||
      F.isInterposable())
    return false;
  unsigned Size = 0, Calls = 0;
  for (const Instruction &I : instructions(F)) {
    const auto *Call = dyn_cast<CallBase>(&I);
    bool IsOwn = Call && Call->getCalledFunction() == &F;
    Calls += IsOwn;
    // A call that must be a tail call would no longer be one.
    if (++Size > MostInlinedInstructions || Calls > MostInlinedCalls || isa<AllocaInst>(I) ||
        (Call && Call->isMustTailCall()) || (IsOwn && (isa<InvokeInst>(Call) || Call->isNoInline())))
      return false;
  }
  if (Calls == 0)
    return false;
  // A function that calls itself cannot be inlined, but a copy that calls it can.
  ValueToValueMapTy Map;
  Function *Copy = CloneFunction(&F, Map);
  bool Did = false;
  if (isInlineViable(*Copy).isSuccess()) {
    SmallVector<CallBase *, MostInlinedCalls> Own;
    for (Instruction &I : instructions(F))
      if (auto *Call = dyn_cast<CallBase>(&I); Call && Call->getCalledFunction() == &F)
        Own.push_back(Call);
    for (CallBase *Call : Own) {
      Call->setCalledFunction(Copy);
      InlineFunctionInfo Info;
      if (InlineFunction(*Call, Info).isSuccess())
        Did = true;
      else
        Call->setCalledFunction(&F);
    }
  }
  Copy->eraseFromParent();
  if (Did) {
    FAM.invalidate(F, PreservedAnalyses::none());
    FunctionPassManager Clean;
    Clean.addPass(InstCombinePass());
    Clean.addPass(SimplifyCFGPass());
    Clean.run(F, FAM);
  }
  return Did;
}

/// Why `F` gets no probes; null if it does.
const char *reasonToSkip(const Function &F) {
  if (F.hasFnAttribute(Attribute::Naked))
    return "naked";
  if (F.hasAvailableExternallyLinkage())
    return "defined elsewhere";
  if (F.hasFnAttribute(DoneAttribute))
    return "done before";
  if (F.getCallingConv() == CallingConv::X86_INTR)
    return "interrupt handler";
  return nullptr;
}

class ProbesPass : public PassInfoMixin<ProbesPass> {
public:
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &AM) {
    Settings Set = readSettings();
    if (Set.Place == Placement::None)
      return PreservedAnalyses::all();
    auto &FAM = AM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
    Symbols Sym;
    Callees Known;
    std::string Lines;
    bool Changed = false;
    const SmallPtrSet<const Function *, 4> Unwilling = unwilling(M);
    CallGraph Graph(M);
    for (scc_iterator<CallGraph *> It = scc_begin(&Graph); !It.isAtEnd(); ++It) {
      SmallPtrSet<const Function *, 4> Cycle;
      SmallVector<Function *, 4> Functions;
      for (CallGraphNode *Node : *It)
        if (Function *F = Node->getFunction(); F && !F->isDeclaration()) {
          Functions.push_back(F);
          if (It.hasCycle())
            Cycle.insert(F);
        }
      for (Function *F : Functions) {
        const char *Skipped = Unwilling.count(F) ? "asked not to" : reasonToSkip(*F);
        Report Done;
        if (!Skipped) {
          if (Set.Place == Placement::Bounded && Cycle.size() == 1)
            Changed |= inlineOneLevel(*F, FAM);
          Placer P(*F, FAM, Set, Sym, Known, Cycle);
          if (P.run())
            Changed = true;
          F->addFnAttr(DoneAttribute);
          Done = P.Done;
          FAM.invalidate(*F, PreservedAnalyses::none());
        }
        if (!Set.Report.empty())
          describe(Lines, M, *F, Done, Skipped);
      }
    }
    if (!Lines.empty())
      append(Set.Report, Lines);
    return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }

  static bool isRequired() { return true; }

private:
  static std::string quoted(StringRef Text) {
    std::string Out = "\"";
    for (char C : Text) {
      if (C == '"' || C == '\\')
        Out += '\\';
      if (static_cast<unsigned char>(C) >= 0x20)
        Out += C;
    }
    return Out + "\"";
  }

  static void describe(std::string &Lines, const Module &M, const Function &F, const Report &Done,
                       const char *Skipped) {
    raw_string_ostream Out(Lines);
    Out << "{\"function\":" << quoted(F.getName()) << ",\"module\":" << quoted(M.getSourceFileName())
        << ",\"loops\":" << Done.Loops << ",\"bounded\":" << Done.Bounded << ",\"split\":" << Done.Split
        << ",\"latch\":" << Done.Latch << ",\"calls\":" << Done.Calls << ",\"gap\":" << Done.Gap << ",\"elsewhere\":[";
    for (size_t I = 0; I < Done.Elsewhere.size(); ++I)
      Out << (I ? "," : "") << quoted(Done.Elsewhere[I]);
    Out << "],\"skipped\":";
    if (Skipped)
      Out << quoted(Skipped);
    else
      Out << "null";
    Out << "}\n";
  }

  /// One write, so that compilers that run at the same time do not mix their lines.
  static void append(const std::string &Path, const std::string &Lines) {
    std::error_code Error;
    raw_fd_ostream Out(Path, Error, sys::fs::CD_OpenAlways, sys::fs::FA_Write, sys::fs::OF_Append);
    if (Error) {
      errs() << "heddle: cannot write the report to " << Path << ": " << Error.message() << "\n";
      return;
    }
    Out.SetBufferSize(Lines.size() + 1);
    Out << Lines;
  }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "heddle-probes", "1", [](PassBuilder &PB) {
            // Whole programs: all modules as one, at the end.
#if LLVM_VERSION_MAJOR >= 15
            PB.registerFullLinkTimeOptimizationLastEPCallback(
                [](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(ProbesPass()); });
#endif
#if LLVM_VERSION_MAJOR >= 20
            PB.registerOptimizerLastEPCallback(
                [](ModulePassManager &MPM, OptimizationLevel, ThinOrFullLTOPhase Phase) {
                  // rustc optimises with the pass at link time, too, which is better. A linker has no pass.
                  bool IsBefore =
                      Phase == ThinOrFullLTOPhase::ThinLTOPreLink || Phase == ThinOrFullLTOPhase::FullLTOPreLink;
                  if (!IsBefore || std::getenv("HEDDLE_PROBES_BEFORE_LINK"))
                    MPM.addPass(ProbesPass());
                });
#else
            PB.registerOptimizerLastEPCallback(
                [](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(ProbesPass()); });
#endif
          }};
}
